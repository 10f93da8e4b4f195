//! The program that tests start as a decoder child: `child_main`, or a child that misbehaves in a chosen way.

use std::io::{Read, Write, stdin, stdout};
use std::process::ExitCode;

use cards::{Problem, ProblemCode};
use decoder::child::{child_main, wire};
use rustix::process::{Resource, Signal, getpid, getrlimit, kill_process};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [flag, how] = args.as_slice() else { return child_main() };
    assert_eq!(flag, "--misbehave");
    if how == "die-early" {
        return ExitCode::from(127);
    }
    if how == "flood" {
        // Without reading first: the parent must not insist on being read.
        while stdout().write_all(&[0; 4096]).is_ok() {}
        return ExitCode::SUCCESS;
    }
    let mut request = Vec::new();
    if stdin().read_to_end(&mut request).is_err() || request.is_empty() {
        return ExitCode::SUCCESS;
    }
    misbehave(how)
}

fn misbehave(how: &str) -> ExitCode {
    match how {
        "spin" => loop {
            std::hint::spin_loop();
        },
        "sleep" => loop {
            std::thread::park();
        },
        "abort" => std::process::abort(),
        "panic" => panic!("as asked"),
        "overflow" => std::process::exit(i32::from(deeper(1) == 0)),
        "memory" => {
            let hoard = vec![1_u8; 1 << 40];
            std::process::exit(i32::from(hoard[1 << 20]));
        }
        "killed" | "terminated" => {
            let signal = if how == "killed" { Signal::KILL } else { Signal::TERM };
            let _ = kill_process(getpid(), signal);
            ExitCode::SUCCESS
        }
        "exit" => ExitCode::from(7),
        "silent" => ExitCode::SUCCESS,
        "garbage" => say(b"ArkA\x01\x01garbage"),
        "older" => say(b"ArkA\0anything"),
        "chatty" => {
            let mut answer = told("sound");
            answer.push(b'!');
            say(&answer)
        }
        "noisy" => {
            let mut stderr = std::io::stderr();
            for _ in 0..100 {
                let _ = stderr.write_all(&[b'x'; 10_000]);
            }
            say(&told("sound"))
        }
        "tell" => say(&told(&surroundings())),
        other => panic!("unknown way to misbehave: {other}"),
    }
}

fn say(answer: &[u8]) -> ExitCode {
    let _ = stdout().write_all(answer);
    ExitCode::SUCCESS
}

/// An answer that carries a text: the detail of a problem.
fn told(detail: &str) -> Vec<u8> {
    wire::answer(&Err(Problem::new(ProblemCode::Corrupt, detail)))
}

/// What this process could reach.
fn surroundings() -> String {
    let environment: Vec<_> = std::env::vars_os().collect();
    let mut open: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    open.sort();
    let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    format!(
        "environment={} open={} memory={} cpu={} files={} file_bytes={} core={}",
        environment.len(),
        open.join(","),
        limit(Resource::As),
        limit(Resource::Cpu),
        limit(Resource::Nofile),
        limit(Resource::Fsize),
        limit(Resource::Core),
    )
}

#[expect(unconditional_recursion, reason = "to overflow the stack")]
fn deeper(depth: u64) -> u64 {
    let ballast = [depth; 64];
    deeper(std::hint::black_box(ballast[7]) + 1) + ballast[3]
}
