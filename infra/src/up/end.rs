//! The signals that end a fleet.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Where Linux says which signals this process ignores.
const STATUS: &str = "/proc/self/status";

/// Hears of the end.
pub(super) struct End {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed: the fleet in its foreground ends too. None where somebody wished otherwise.
    hangup: Option<Signal>,
}

impl End {
    /// A handler takes the place of what a signal did before, so a hangup that is ignored gets none: that is how `nohup`
    /// says that what it starts shall outlive its terminal. An interrupt gets one in any case: a shell that starts something
    /// with `&` lets it ignore those of its keyboard, and one that is sent to this process alone is meant.
    pub(super) fn new() -> anyhow::Result<Self> {
        // Without that file it is as if nobody had wished anything.
        let status = std::fs::read_to_string(STATUS).unwrap_or_default();
        let hangup = (!ignores_hangup(&status)).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangup.transpose()?,
        })
    }

    pub(super) async fn wait(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// By the mask of ignored signals, of which the lowest bit is the first signal's: SIGHUP's.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = |mask: &str| format!("Name:\tpodctl\nSigBlk:\t0000000000000001\n{mask}");
        // A Rust program ignores SIGPIPE, the thirteenth.
        assert!(!ignores_hangup(&status("SigIgn:\t0000000000001000\n")));
        assert!(ignores_hangup(&status(
            "SigIgn:\t0000000000001001\nSigCgt:\t0\n"
        )));
        assert!(!ignores_hangup(&status("")));
        assert!(!ignores_hangup(&status("SigIgn:\tnothing\n")));
    }

    /// What the kernel says of a process that `nohup` began, and of one that it did not.
    #[test]
    fn a_process_begun_by_nohup_ignores_a_hangup() {
        let status = |words: &[&str]| {
            let (program, words) = words.split_first().unwrap();
            let mut command = Command::new(program);
            // Whatever this test itself was begun by.
            let said = command.args(words).arg(STATUS).output().unwrap();
            String::from_utf8(said.stdout).unwrap()
        };
        assert!(ignores_hangup(&status(&["nohup", "cat"])));
        let plain = ["env", "--default-signal=HUP", "cat"];
        assert!(!ignores_hangup(&status(&plain)));
    }
}
