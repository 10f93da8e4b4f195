//! Every file is decoded in a process of its own, which is started ahead, decodes one file and exits (R-C3).
//!
//! 1. [`Children`] keeps warm children. They wait on their standard input, and have no environment, no other open
//!    file, a process group of their own, and limits set from outside: address space, CPU, no files, no core.
//! 2. One request goes in ([`wire`]); the child decodes it ([`crate::pipeline`]), answers and exits.
//! 3. The answer is read up to a cap and parsed as hostile; a wall clock runs meanwhile.
//! 4. How the child ended says whose fault it was (`verdict.rs`): the file's is a [`Problem`] for its owner, the
//!    machine's is a [`MachineFault`] and the job is tried again.
//!
//! A child is killed when its job is dropped (a lost lease), and is taken by the kernel before its parent when memory
//! runs out. What is not here: seccomp and Landlock.

mod main;
mod verdict;
pub mod wire;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cards::{MediaType, Problem};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::pipeline::{Decoded, Limits, Options};
use verdict::End;

pub use main::child_main;

/// What a child says on standard error that is kept: the first lines of a panic.
const WORDS_BYTES_MAX: u64 = 4096;
/// Standard streams, and what the loader opens on the way.
const OPEN_FILES_MAX: u64 = 16;
/// A killed child is gone at once unless the kernel is stuck; then it is left to it.
const REAP_WAIT: Duration = Duration::from_secs(5);

/// The program that runs [`child_main`].
#[derive(Clone, Debug)]
pub struct ChildProgram {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// Why a file was not decoded.
#[derive(Debug, thiserror::Error)]
pub enum ChildFailure {
    /// The file is bad, or costs more than it may: its owner is told.
    #[error("refused: {0}")]
    Refused(Problem),
    /// Not the file's fault: to be tried again.
    #[error(transparent)]
    Machine(#[from] MachineFault),
}

/// A death or silence that was not the file's doing.
#[derive(Debug, thiserror::Error)]
pub enum MachineFault {
    /// No child could be started.
    #[error("the decoder child `{path}` can't be started")]
    Spawn {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A child was started but could not be limited, so it was given nothing.
    #[error("the limits of a decoder child can't be set")]
    Limit(#[source] io::Error),
    /// A signal that neither the child's code nor its limits raise: the kernel short of memory, an operator.
    #[error("the decoder child was killed from outside by signal {signal}")]
    Killed {
        /// Which one.
        signal: i32,
    },
    /// The wall clock ran out although the child had hardly run.
    #[error("the decoder child had {cpu_ms} ms of CPU in {wall_ms} ms: the host is starved")]
    Starved {
        /// What it had.
        cpu_ms: u128,
        /// The time on the clock.
        wall_ms: u128,
    },
    /// It exited in a way its code never does on account of a file: it could not be loaded, or is another program.
    #[error("the decoder child exited with code {code}: {words}")]
    Exited {
        /// The exit code.
        code: i32,
        /// The beginning of its standard error.
        words: String,
    },
    /// It speaks another version: the program was replaced under the running parent.
    #[error("the decoder child is of another version than its parent")]
    OtherVersion,
    /// The operating system would not say how it ended.
    #[error("the end of the decoder child can't be read")]
    Wait(#[source] io::Error),
    /// Too large to be sent; a card's size is checked long before.
    #[error("a file of {bytes} bytes is too large to be sent to the decoder child")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// [`Children::shutdown`] was called.
    #[error("the decoder children are shut down")]
    ShutDown,
}

/// A pool of warm children.
#[derive(Debug)]
pub struct Children {
    program: ChildProgram,
    options: Options,
    parallel: usize,
    permits: Semaphore,
    warm: Mutex<Vec<Child>>,
}

impl Children {
    /// A pool that decodes at most `parallel` files at once (one a core is right) and keeps as many children ready.
    /// To be called within a tokio runtime. A program that can't be started is told by [`Self::decode`].
    pub fn new(program: ChildProgram, options: Options, parallel: usize) -> Self {
        let parallel = parallel.clamp(1, Semaphore::MAX_PERMITS);
        // Everything opened in Rust is closed in children already; what this process was itself started with is not.
        close_fds::set_fds_cloexec_threadsafe(3, &[]);
        let children =
            Self { program, options, parallel, permits: Semaphore::new(parallel), warm: Mutex::default() };
        children.refill();
        children
    }

    /// Decodes one file in a child of its own. Dropping the future kills the child.
    pub async fn decode(&self, announced: MediaType, bytes: &[u8]) -> Result<Decoded, ChildFailure> {
        let _permit = self.permits.acquire().await.map_err(|_| MachineFault::ShutDown)?;
        let request = wire::request_header(announced, bytes.len(), &self.options)
            .ok_or(MachineFault::TooLarge { bytes: bytes.len() })?;
        let child = match self.take_warm() {
            Some(child) => child,
            None => self.start()?,
        };
        self.refill();
        let limits = &self.options.limits;
        let (end, words) = run(child, &request, bytes, limits).await?;
        if !words.is_empty() {
            tracing::debug!(words, "decoder child wrote to standard error");
        }
        let answer = verdict::judge(end, &words, limits)?;
        match wire::read_answer(&answer, announced, &self.options) {
            Ok(decoded) => Ok(decoded?),
            Err(wire::WireError::OtherVersion) => Err(MachineFault::OtherVersion.into()),
            Err(wire::WireError::Malformed(what)) => {
                tracing::warn!(what, "decoder child gave an answer that makes no sense");
                Err(verdict::senseless().into())
            }
        }
    }

    /// Takes no more files, waits for those in hand, and ends the warm children.
    pub async fn shutdown(&self) {
        let all = u32::try_from(self.parallel).unwrap_or(u32::MAX);
        // Fails only when it was called before.
        let _in_hand = self.permits.acquire_many(all).await;
        self.permits.close();
        let warm = std::mem::take(&mut *self.warm.lock().unwrap_or_else(PoisonError::into_inner));
        for child in warm {
            reap(child).await;
        }
    }

    /// A warm child that is still alive.
    fn take_warm(&self) -> Option<Child> {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(mut child) = warm.pop() {
            if matches!(child.try_wait(), Ok(None)) {
                return Some(child);
            }
        }
        None
    }

    fn refill(&self) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        while warm.len() < self.parallel {
            match self.start() {
                Ok(child) => warm.push(child),
                Err(error) => {
                    // The next file will need one and report it.
                    tracing::warn!(error = &error as &dyn std::error::Error, "no decoder child ahead");
                    return;
                }
            }
        }
    }

    fn start(&self) -> Result<Child, MachineFault> {
        let child = Command::new(&self.program.path)
            .args(&self.program.args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // An interrupt typed at the parent's terminal is not for it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| MachineFault::Spawn { path: self.program.path.clone(), source })?;
        limit(&child, &self.options.limits).map_err(MachineFault::Limit)?;
        Ok(child)
    }
}

impl From<Problem> for ChildFailure {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

/// Sets the limits from outside, before the child gets its first byte.
fn limit(child: &Child, limits: &Limits) -> io::Result<()> {
    let pid = pid(child).ok_or_else(|| io::Error::other("the child is gone"))?;
    let cpu_s = limits.cpu.as_secs().max(1);
    let table = [
        (Resource::As, limits.memory_bytes, limits.memory_bytes),
        // At the first the child gets SIGXCPU, which tells this death from others; a second later it is killed.
        (Resource::Cpu, cpu_s, cpu_s + 1),
        (Resource::Fsize, 0, 0),
        (Resource::Core, 0, 0),
        (Resource::Nofile, OPEN_FILES_MAX, OPEN_FILES_MAX),
    ];
    for (resource, current, maximum) in table {
        prlimit(Some(pid), resource, Rlimit { current: Some(current), maximum: Some(maximum) })?;
    }
    // When memory runs out the child goes, not its parent. Without the right to say so that is the kernel's choice.
    let _ = std::fs::write(format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()), "1000");
    Ok(())
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

/// Sends the request, reads the answer, and waits for the exit, all against the wall clock.
async fn run(
    mut child: Child,
    request: &[u8],
    bytes: &[u8],
    limits: &Limits,
) -> Result<(End, String), MachineFault> {
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(MachineFault::Wait(io::Error::other("the child has no pipes")));
    };
    let begun = Instant::now();
    let exchange = async {
        let talk = tokio::try_join!(
            send(stdin, request, bytes),
            read_answer(stdout, limits.output_bytes_max),
            read_words(stderr)
        );
        match talk {
            Ok(((), answer, words)) => {
                let status = child.wait().await.map_err(MachineFault::Wait)?;
                Ok((End::Exited { status, answer }, words))
            }
            Err(Flooded) => Ok((End::Flooded, String::new())),
        }
    };
    let ended = timeout(limits.wall, exchange).await;
    match ended {
        Ok(Ok((end, words))) => {
            if matches!(end, End::Flooded) {
                reap(child).await;
            }
            Ok((end, words))
        }
        Ok(Err(fault)) => Err(fault),
        Err(_elapsed) => {
            let cpu = cpu_time(&child);
            reap(child).await;
            Ok((End::TimedOut { cpu, wall: begun.elapsed() }, String::new()))
        }
    }
}

/// More came than any answer has.
struct Flooded;

async fn send(mut stdin: ChildStdin, request: &[u8], bytes: &[u8]) -> Result<(), Flooded> {
    // A child that is gone breaks the pipe; how it ended says more than that.
    if stdin.write_all(request).await.is_ok() && stdin.write_all(bytes).await.is_ok() {
        let _ = stdin.shutdown().await;
    }
    Ok(())
}

async fn read_answer(stdout: impl AsyncRead + Unpin, bytes_max: u64) -> Result<Vec<u8>, Flooded> {
    let mut answer = Vec::new();
    // A broken pipe ends the answer; what was read is judged.
    let _ = stdout.take(bytes_max.saturating_add(1)).read_to_end(&mut answer).await;
    if u64::try_from(answer.len()).is_ok_and(|bytes| bytes <= bytes_max) { Ok(answer) } else { Err(Flooded) }
}

/// The beginning of standard error; the rest is read and forgotten, so that nobody blocks on a full pipe.
async fn read_words(mut stderr: impl AsyncRead + Unpin) -> Result<String, Flooded> {
    let mut words = Vec::new();
    let _ = (&mut stderr).take(WORDS_BYTES_MAX).read_to_end(&mut words).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    Ok(String::from_utf8_lossy(&words).trim().to_owned())
}

/// CPU time of a child that still runs, from `/proc/<pid>/stat`.
fn cpu_time(child: &Child) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()?)).ok()?;
    verdict::cpu_time(&stat)
}

async fn reap(mut child: Child) {
    let _ = child.start_kill();
    let _ = timeout(REAP_WAIT, child.wait()).await;
}
