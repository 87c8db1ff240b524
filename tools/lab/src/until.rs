// SPDX-License-Identifier: GPL-2.0

//! Waiting for a condition.

use crate::bed::Host;
use crate::machine::Output;
use anyhow::{Result, bail, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

const UNTIL: &str = include_str!("../../../tests/guest/until/until.sh");

/// Time that one run of a condition may take.
const ONE_RUN: Duration = Duration::from_secs(30);

/// Time between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(100);

impl Host {
    /// Waits until a shell condition holds: one shell in the guest runs it again and again.
    ///
    /// # Errors
    ///
    /// It does not for so long, scaled to the lane and kernel. What it printed last is in the message.
    pub fn wait_until(&self, condition: &str, limit: Duration) -> Result<()> {
        // The guest's clock is read in whole seconds.
        let seconds = self.scaled(limit).as_millis().div_ceil(1000).to_string();
        let output = self.sh_for(UNTIL, &[condition, &seconds], limit + ONE_RUN)?;
        if output.success() {
            return Ok(());
        }
        let last = Output {
            what: condition.to_owned(),
            ..output
        };
        bail!("never came true: {}", last.describe())
    }

    /// Waits until a condition holds that takes more than a shell to see.
    ///
    /// # Errors
    ///
    /// It does not for so long, scaled to the lane and kernel, or cannot be seen.
    pub fn until(
        &self,
        limit: Duration,
        mut condition: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + self.scaled(limit);
        while !condition()? {
            ensure!(Instant::now() < end, "never came true");
            sleep(PAUSE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::UNTIL;
    use std::fs::{self, File};
    use std::io::Result;
    use std::path::Path;
    use std::process::Command;

    /// Tries a condition for a second. Returns whether it came true, and the outputs of its last run.
    fn until(directory: &Path, condition: &str) -> Result<(bool, String, String)> {
        let [out, err] = ["out", "err"].map(|name| directory.join(name));
        let status = Command::new("sh")
            .args(["-c", UNTIL, "sh", condition, "1"])
            .current_dir(directory)
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .status()?;
        Ok((
            status.success(),
            fs::read_to_string(out)?,
            fs::read_to_string(err)?,
        ))
    }

    #[test]
    fn a_condition_is_tried_until_it_holds() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let third = "echo >>tries; wc -l <tries; echo error >&2; [ $(wc -l <tries) = 3 ]";
        let expected = (true, "3\n".to_owned(), "error\n".to_owned());
        assert_eq!(until(directory.path(), third)?, expected);
        Ok(())
    }

    #[test]
    fn one_that_never_holds_has_its_last_word() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let never = "echo >>tries; echo word; exit 1";
        let expected = (false, "word\n".to_owned(), String::new());
        assert_eq!(until(directory.path(), never)?, expected);
        let tries = fs::read_to_string(directory.path().join("tries"))?.len();
        assert!((2..=25).contains(&tries), "{tries} in one to two seconds");
        Ok(())
    }
}
