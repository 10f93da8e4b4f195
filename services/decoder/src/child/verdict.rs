//! Whose fault the end of a child was (R-C3).
//!
//! | end | verdict |
//! |---|---|
//! | exit 0 | the answer counts |
//! | a panic's exit code; SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT | `corrupt` |
//! | SIGABRT after "memory allocation … failed", SIGXCPU, SIGXFSZ, an answer past the cap | `limit_exceeded` |
//! | wall clock, at least half of the CPU limit used | `limit_exceeded` |
//! | wall clock, less CPU than that | the machine's: a busy child would have met its CPU limit long before |
//! | any other signal (SIGKILL, SIGTERM, SIGINT …), any other exit code | the machine's |

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use cards::{Problem, ProblemCode};
use rustix::process::Signal;

use super::{ChildFailure, MachineFault};
use crate::pipeline::Limits;

/// Exit code of a Rust program whose main thread panicked.
const PANICKED: i32 = 101;
/// Linux counts in hundredths of a second towards programs, on every architecture we build for (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// How a child ended.
pub(super) enum End {
    /// By itself, or by a signal that was not ours.
    Exited { status: ExitStatus, answer: Vec<u8> },
    /// Killed by us: the wall clock ran out.
    TimedOut { cpu: Option<Duration>, wall: Duration },
    /// Killed by us: it wrote more than any answer has.
    Flooded,
}

/// The answer, if it counts.
pub(super) fn judge(end: End, words: &str, limits: &Limits) -> Result<Vec<u8>, ChildFailure> {
    match end {
        End::Exited { status, answer } => match (status.code(), status.signal()) {
            (Some(0), _) => Ok(answer),
            (Some(PANICKED), _) => Err(crashed().into()),
            (None, Some(signal)) => Err(signalled(signal, words)),
            (Some(code), _) => Err(MachineFault::Exited { code, words: words.to_owned() }.into()),
            (None, None) => {
                Err(MachineFault::Exited { code: status.into_raw(), words: words.to_owned() }.into())
            }
        },
        End::Flooded => Err(exceeded("output").into()),
        End::TimedOut { cpu, wall } => {
            let cpu = cpu.unwrap_or_default();
            if cpu >= limits.cpu / 2 {
                Err(exceeded("time").into())
            } else {
                Err(MachineFault::Starved { cpu_ms: cpu.as_millis(), wall_ms: wall.as_millis() }.into())
            }
        }
    }
}

fn signalled(signal: i32, words: &str) -> ChildFailure {
    let is = |known: Signal| known.as_raw() == signal;
    // Rust aborts when memory is refused, and says so first.
    if is(Signal::ABORT) && words.contains("memory allocation of") {
        exceeded("memory").into()
    } else if is(Signal::XCPU) {
        exceeded("CPU time").into()
    } else if is(Signal::XFSZ) {
        exceeded("output").into()
    } else if [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::TRAP, Signal::SYS]
        .into_iter()
        .any(is)
    {
        crashed().into()
    } else {
        MachineFault::Killed { signal }.into()
    }
}

/// The answer to a file on which the decoder crashed.
pub(super) fn crashed() -> Problem {
    Problem::new(ProblemCode::Corrupt, "the file makes the decoder crash")
}

/// The answer to a file on which the decoder talked nonsense.
pub(super) fn senseless() -> Problem {
    Problem::new(ProblemCode::Corrupt, "the file makes the decoder give an answer that makes no sense")
}

fn exceeded(what: &str) -> Problem {
    Problem::new(ProblemCode::LimitExceeded, format!("decoding the file takes more {what} than it may have"))
}

/// User and system time in a line of `/proc/<pid>/stat`. The second field is the program's name, in brackets, and may
/// hold anything, brackets and spaces too.
pub(super) fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    // Counted from the third field on, times are the 14th and 15th.
    let mut times = fields.split_ascii_whitespace().skip(11);
    let ticks = times.next()?.parse::<u32>().ok()?.checked_add(times.next()?.parse().ok()?)?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(end: End, words: &str) -> Result<(), Option<ProblemCode>> {
        let limits = Limits { cpu: Duration::from_secs(10), ..Limits::default() };
        match judge(end, words, &limits) {
            Ok(_) => Ok(()),
            Err(ChildFailure::Refused(problem)) => Err(Some(problem.code)),
            Err(ChildFailure::Machine(_)) => Err(None),
        }
    }

    fn exit(code: i32) -> End {
        End::Exited { status: ExitStatus::from_raw(code << 8), answer: vec![] }
    }

    fn signal(signal: Signal) -> End {
        End::Exited { status: ExitStatus::from_raw(signal.as_raw()), answer: vec![] }
    }

    fn timed_out(cpu: Option<u64>) -> End {
        End::TimedOut { cpu: cpu.map(Duration::from_secs), wall: Duration::from_secs(30) }
    }

    #[test]
    fn each_end_is_the_files_fault_or_the_machines() {
        let (corrupt, limit, machine) =
            (Err(Some(ProblemCode::Corrupt)), Err(Some(ProblemCode::LimitExceeded)), Err(None));
        assert_eq!(check(exit(0), ""), Ok(()));
        assert_eq!(check(exit(101), ""), corrupt);
        for code in [1, 2, 3, 126, 127] {
            assert_eq!(check(exit(code), ""), machine, "{code}");
        }
        for crash in [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABORT, Signal::SYS] {
            assert_eq!(check(signal(crash), "thread has overflowed its stack"), corrupt, "{crash:?}");
        }
        assert_eq!(check(signal(Signal::ABORT), "memory allocation of 2700000000 bytes failed"), limit);
        assert_eq!(check(signal(Signal::XCPU), ""), limit);
        for outside in [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP] {
            assert_eq!(check(signal(outside), "memory allocation of 1 bytes failed"), machine, "{outside:?}");
        }
        assert_eq!(check(End::Flooded, ""), limit);
        assert_eq!(check(timed_out(Some(5)), ""), limit);
        assert_eq!(check(timed_out(Some(4)), ""), machine);
        assert_eq!(check(timed_out(None), ""), machine);
    }

    #[test]
    fn cpu_time_is_read_whatever_the_program_is_called() {
        let stat = "42 (a) b (c)) R 1 42 42 0 -1 4194304 90 0 0 0 151 49 0 0 20 0 1 0 1 2 3";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu_time(""), None);
        assert_eq!(cpu_time("42 (a) R 1 2"), None);
    }
}
