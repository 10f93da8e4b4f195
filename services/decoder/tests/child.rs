//! What a child can do to its parent: cost one job (R-C3, PROOF (c) 17, 19, 21).

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

mod common;
#[path = "common/program.rs"]
mod program;

use std::io::Write;
use std::time::{Duration, Instant};

use cards::{MediaType, ProblemCode};
use decoder::child::{ChildFailure, ChildProgram, Children, MachineFault};
use decoder::pipeline::{Limits, Options};

use common::outcome;
use program::{children, program};

fn short() -> Options {
    let limits = Limits { cpu: Duration::from_secs(1), wall: Duration::from_secs(20), ..Limits::default() };
    Options { limits, ..Options::default() }
}

async fn misbehave(how: &str, options: Options) -> ChildFailure {
    let children = Children::new(program(&["--misbehave", how]), options, 1);
    // Twice: the pool survives the first.
    let first = children.decode(MediaType::Png, b"\x89PNG\r\n\x1a\n").await;
    let second = children.decode(MediaType::Png, b"\x89PNG\r\n\x1a\n").await;
    assert_eq!(format!("{first:?}").split('{').next(), format!("{second:?}").split('{').next());
    first.unwrap_err()
}

async fn refused(how: &str, options: Options) -> ProblemCode {
    match misbehave(how, options).await {
        ChildFailure::Refused(problem) => problem.code,
        ChildFailure::Machine(fault) => panic!("{how}: {fault}"),
    }
}

async fn fault(how: &str, options: Options) -> MachineFault {
    match misbehave(how, options).await {
        ChildFailure::Machine(fault) => fault,
        ChildFailure::Refused(problem) => panic!("{how}: {problem}"),
    }
}

#[tokio::test]
async fn a_crash_on_the_file_is_the_files_fault() {
    for how in ["abort", "panic", "overflow"] {
        assert_eq!(refused(how, Options::default()).await, ProblemCode::Corrupt, "{how}");
    }
}

#[tokio::test]
async fn a_limit_exceeded_is_the_files_fault() {
    for how in ["spin", "memory", "flood"] {
        assert_eq!(refused(how, short()).await, ProblemCode::LimitExceeded, "{how}");
    }
}

#[tokio::test]
async fn a_spin_that_the_wall_clock_ends_is_the_files_fault_too() {
    // CPU seconds are whole; the wall clock comes first here.
    let limits =
        Limits { cpu: Duration::from_secs(2), wall: Duration::from_millis(1_900), ..Limits::default() };
    let children =
        Children::new(program(&["--misbehave", "spin"]), Options { limits, ..Options::default() }, 1);
    match children.decode(MediaType::Png, b"x").await.unwrap_err() {
        ChildFailure::Refused(problem) => assert_eq!(problem.code, ProblemCode::LimitExceeded),
        // A host so busy that the child had less than a second: then this verdict is the right one.
        ChildFailure::Machine(fault) => assert!(matches!(fault, MachineFault::Starved { .. }), "{fault}"),
    }
}

#[tokio::test]
async fn a_death_from_outside_is_the_machines_fault() {
    assert!(matches!(fault("killed", Options::default()).await, MachineFault::Killed { signal: 9 }));
    assert!(matches!(fault("terminated", Options::default()).await, MachineFault::Killed { signal: 15 }));
    assert!(matches!(fault("exit", Options::default()).await, MachineFault::Exited { code: 7, .. }));
    assert!(matches!(fault("die-early", Options::default()).await, MachineFault::Exited { code: 127, .. }));
    let starved = Limits { wall: Duration::from_millis(300), ..Limits::default() };
    let starved = Options { limits: starved, ..Options::default() };
    assert!(matches!(fault("sleep", starved).await, MachineFault::Starved { .. }));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_the_machines_fault() {
    let program = ChildProgram { path: "/nowhere/arkiv".into(), args: vec![] };
    let children = Children::new(program, Options::default(), 1);
    let failure = children.decode(MediaType::Png, b"x").await.unwrap_err();
    assert!(matches!(failure, ChildFailure::Machine(MachineFault::Spawn { .. })), "{failure}");
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_refused_and_another_version_is_not_the_files_fault() {
    for how in ["garbage", "chatty"] {
        assert_eq!(refused(how, Options::default()).await, ProblemCode::Corrupt, "{how}");
    }
    for how in ["older", "silent"] {
        assert!(matches!(fault(how, Options::default()).await, MachineFault::OtherVersion), "{how}");
    }
}

#[tokio::test]
async fn much_on_standard_error_blocks_nobody() {
    assert_eq!(refused("noisy", Options::default()).await, ProblemCode::Corrupt);
}

/// The tests run with an environment (PATH at least) and open files; the child sees none of them. 3 is the directory
/// it lists.
#[tokio::test]
async fn a_child_has_no_environment_no_files_and_its_limits() {
    let held = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let ChildFailure::Refused(problem) = misbehave("tell", Options::default()).await else { panic!() };
    assert_eq!(
        problem.detail,
        "environment=0 open=0,1,2,3 memory=536870912 cpu=10 files=16 file_bytes=0 core=0"
    );
    drop(held);
}

#[tokio::test]
async fn each_file_costs_one_job_and_the_next_one_is_decoded() {
    let children = children(Options::default());
    let good: &[u8] = include_bytes!("cases/ok-1x1.png");
    let bomb: &[u8] = include_bytes!("cases/bomb-16000x16000-valid-gray.png");
    // An animation whose first frame is an alpha plane without a picture, and a lossy frame of 0 x 0 pixels.
    let mut small =
        b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x12\0\0\0\0\0\0\0\0\0ANIM\x06\0\0\0\0\0\0\0\0\0".to_vec();
    small.extend(b"ANMF\x2a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x64\0\0\0ALPH\x02\0\0\0\0\0VP8 \x08\0\0\0\0\0\0\x9d\x01\x2a\0\0");
    let size = u32::try_from(small.len() - 8).unwrap().to_le_bytes();
    small[4..8].copy_from_slice(&size);
    for (announced, file, expected) in [
        (MediaType::Png, bomb, "too_many_pixels"),
        (MediaType::Webp, &small, "corrupt"),
        (MediaType::Png, good, "ready 1x1 frames 1"),
    ] {
        assert_eq!(outcome(&children, announced, file).await.0, expected);
    }
    children.shutdown().await;
    let failure = children.decode(MediaType::Png, good).await.unwrap_err();
    assert!(matches!(failure, ChildFailure::Machine(MachineFault::ShutDown)));
}

/// A picture within the pixel limit that needs more memory than the child has.
#[tokio::test]
async fn a_picture_that_needs_too_much_memory_is_refused() {
    let limits = Limits { memory_bytes: 96 * 1024 * 1024, ..Limits::default() };
    let children = children(Options { limits, ..Options::default() });
    let large = clear_png(7_000);
    let (line, _) = outcome(&children, MediaType::Png, &large).await;
    assert_eq!(line, "limit_exceeded");
    // With its usual memory it is decoded.
    let (line, _) = outcome(&self::children(Options::default()), MediaType::Png, &large).await;
    assert_eq!(line, "ready 7000x7000 frames 1");
}

fn clear_png(side_px: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side_px, side_px);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut header = encoder.write_header().unwrap();
    let mut writer = header.stream_writer().unwrap();
    let row = vec![0_u8; usize::try_from(side_px).unwrap() * 4];
    for _ in 0..side_px {
        writer.write_all(&row).unwrap();
    }
    writer.finish().unwrap();
    drop(header);
    file
}

#[tokio::test]
async fn a_dropped_job_kills_its_child() {
    let options = Options::default();
    let children = Children::new(program(&["--misbehave", "sleep"]), options, 1);
    let job = children.decode(MediaType::Png, b"\x89PNG\r\n\x1a\n");
    assert!(tokio::time::timeout(Duration::from_millis(200), job).await.is_err());
    // One warm child is left; the other is gone as soon as the kernel has buried it.
    let begun = Instant::now();
    while running() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} children still run", running());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    children.shutdown().await;
}

/// Sleeping children of this process.
fn running() -> usize {
    let me = std::process::id().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    processes
        .flatten()
        .filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let (_, fields) = stat.rsplit_once(')')?;
            let mut fields = fields.split_ascii_whitespace();
            let alive = fields.next()? != "Z";
            let mine = fields.next()? == me;
            let sleeper = words.windows(5).any(|window| window == b"sleep");
            Some(alive && mine && sleeper)
        })
        .filter(|counts| *counts)
        .count()
}
