//! A process that changes things and is killed: this test program once more, told by its environment where to write.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use control::database::config::Url;
use control::database::{AuditFilter, Database, OverrideFilter, OverrideRow, PageRange};

use super::lab::{alice, config, of_user};
use super::own_process;
use crate::support::end;

/// The child, and what it says.
pub struct Writer {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Writer {
    /// Runs a test that calls [`write_for_ever`].
    pub fn start(test: &str, url: &str) -> Writer {
        let mut command = own_process::run(test, url);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs already");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Writer { child, said }
    }

    /// The next overrides that it was told are made.
    pub fn told(&mut self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        while told.len() < count {
            let mut line = String::new();
            let length = self.said.read_line(&mut line).expect("it speaks");
            assert!(length > 0, "it ended after {told:?}");
            told.extend(id_in(&line));
        }
        told
    }

    /// SIGKILL, wherever it stands; what it still said.
    pub fn kill(mut self) -> Vec<String> {
        end(&mut self.child);
        self.said.by_ref().lines().map_while(Result::ok).filter_map(|line| id_in(&line)).collect()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn id_in(line: &str) -> Option<String> {
    // The last line may be half of one.
    line.trim().strip_prefix("made ")?.strip_suffix('.').map(str::to_owned)
}

/// Makes one override after the other, and says which.
pub async fn write_for_ever() {
    let url = own_process::told();
    let url = match url.strip_prefix("sqlite:") {
        Some(path) => Url::Sqlite(path.into()),
        None => Url::postgres(&url).expect("it is a URL"),
    };
    let database = Database::open(&config(url)).await.expect("it opens");
    loop {
        let made = database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
        println!("made {}.", made.id);
    }
}

/// All that was told is there, and of each change all of it.
pub async fn is_consistent(database: &Database, told: &[String]) {
    let overrides = every_override(database).await;
    let version = database.version().await.expect("it is read");
    let mut entries = 0;
    let mut page = PageRange::first(1_000);
    loop {
        let rows = database.audit(&page, &AuditFilter::default()).await.expect("it is read");
        let Some(last) = rows.last() else { break };
        page.after = Some(last.id.clone());
        entries += rows.len() as i64;
    }
    assert_eq!((overrides.len() as i64, entries), (version, version));
    let mut versions: Vec<i64> = overrides.iter().map(|row| row.version).collect();
    versions.sort_unstable();
    assert!(versions.into_iter().eq(1..=version), "each version has its change");
    for id in told {
        assert!(overrides.iter().any(|row| row.id == *id), "{id} was told and is not there");
    }
}

/// All pages of all overrides.
pub async fn every_override(database: &Database) -> Vec<OverrideRow> {
    let (mut all, mut page) = (Vec::new(), PageRange::first(1_000));
    loop {
        let rows = database.overrides(&page, &OverrideFilter::default()).await.expect("it is read");
        let Some(last) = rows.last() else { return all };
        page.after = Some(last.id.clone());
        all.extend(rows);
    }
}
