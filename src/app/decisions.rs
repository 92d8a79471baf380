//! Follows the samples of decisions and writes them on: as lines of their log, and to the database if there is one. Each is a
//! task of the control runtime with a cursor of its own, so that a database that hangs holds up no log. No request waits for
//! either; what is overwritten in memory before it was read is counted as lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use control::database::{self, Database, DecisionEvent, Time};
use metrics::{Metrics, SharedCounter};
use observe::record::LineLog;
use observe::record::decisions::{DecisionSample, KEPT_MAX, SampleCursor, SampleMemory};

/// What follows the samples; dropping it ends that.
#[derive(Debug)]
pub(super) struct SampleWriters {
    tasks: Vec<(JoinHandle<()>, Arc<Notify>)>,
}

impl SampleWriters {
    /// Follows the samples from now on. Must be called on the control runtime.
    pub(super) fn start(
        memory: &Arc<SampleMemory>,
        log: &Arc<LineLog>,
        database: Option<impl Fn() -> Option<Database> + Send + Sync + 'static>,
        metrics: &Metrics,
    ) -> SampleWriters {
        let shown = Arc::clone(memory);
        metrics.register(move |families| {
            families.counters(
                "decision_samples",
                "Sampled decisions on limits: kept, or dropped because of the maximum per second",
                None,
                [([("result", "kept")], shown.taken()), ([("result", "dropped")], shown.dropped())],
            )
        });
        let lost = metrics.decision_log.dropped.clone();
        let stop = Arc::new(Notify::new());
        let writing = write(Arc::clone(memory), Arc::clone(log), lost, Arc::clone(&stop));
        let writing = tokio::spawn(writing);
        let (written, lost) = (SharedCounter::default(), SharedCounter::default());
        let shown = (written.clone(), lost.clone());
        metrics.register(move |families| {
            families.counters(
                "decision_events",
                "Sampled decisions written to the control plane's database, or dropped before that",
                None,
                [([("result", "written")], shown.0.value()), ([("result", "dropped")], shown.1.value())],
            )
        });
        let recording = database.map(|database| {
            let (memory, database) = (Arc::clone(memory), Box::new(database));
            let cursor = SampleCursor::default();
            let recorder = Recorder { memory, database, cursor, written, lost, is_failing: false };
            let stop = Arc::new(Notify::new());
            (tokio::spawn(recorder.follow(Arc::clone(&stop))), stop)
        });
        SampleWriters { tasks: [(writing, stop)].into_iter().chain(recording).collect() }
    }

    /// Writes what the workers drew last. They have ended.
    pub(super) async fn end(mut self) {
        for (task, stop) in &mut self.tasks {
            stop.notify_one();
            if timeout(LAST_WRITE, task).await.is_err() {
                tracing::warn!(
                    "the last samples of decisions are lost: the database did not take them before the process stopped"
                );
            }
        }
    }
}

impl Drop for SampleWriters {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|(task, _)| task.abort());
    }
}

async fn write(memory: Arc<SampleMemory>, log: Arc<LineLog>, lost: SharedCounter, stop: Arc<Notify>) {
    let (buffer, mut cursor, mut is_last) = (log.buffer(), SampleCursor::default(), false);
    while !is_last {
        is_last = timeout(EVERY, stop.notified()).await.is_ok();
        let (samples, overwritten) = memory.since(&mut cursor, KEPT_MAX);
        if !buffer.is_written() {
            continue;
        }
        lost.add(overwritten);
        let mut lines = Vec::new();
        for sample in &samples {
            let before = log.before_line("decision", &sample.node, sample.time);
            sample.push_lines(&before, &mut lines);
        }
        lines.iter().for_each(|line| buffer.write_line(line));
        buffer.hand_over();
    }
}

struct Recorder {
    memory: Arc<SampleMemory>,
    database: Box<dyn Fn() -> Option<Database> + Send + Sync>,
    cursor: SampleCursor,
    written: SharedCounter,
    lost: SharedCounter,
    /// Whether the last write failed, so that an outage is one line of the log.
    is_failing: bool,
}

impl Recorder {
    async fn follow(mut self, stop: Arc<Notify>) {
        let mut is_last = false;
        while !is_last {
            is_last = timeout(RECORDED_EVERY, stop.notified()).await.is_ok();
            let Some(database) = (self.database)() else { continue };
            // One statement at a time, so that what comes meanwhile is not held up by a copy of it all.
            loop {
                match self.write(&database).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        if !std::mem::replace(&mut self.is_failing, true) {
                            tracing::warn!(%error, "samples of decisions cannot be written to the database; the \
                                gateway tries again");
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Writes the next ones, and returns how many. Those of a write that failed are lost, because it may have been
    /// done.
    async fn write(&mut self, database: &Database) -> Result<usize, database::Error> {
        let (samples, lost) = self.memory.since(&mut self.cursor, EVENTS_AT_ONCE);
        self.lost.add(lost);
        let events: Vec<DecisionEvent> = samples.iter().filter_map(|sample| event(sample)).collect();
        if events.is_empty() {
            return Ok(0);
        }
        let count = events.len() as u64;
        let written = database.add_events(&events).await;
        (if written.is_ok() { &self.written } else { &self.lost }).add(count);
        written?;
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("samples of decisions are written to the database again");
        }
        Ok(events.len())
    }
}

/// A sample as a row: what decided is its first window.
fn event(sample: &DecisionSample) -> Option<DecisionEvent> {
    let window = sample.windows.first()?;
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let micros = i64::try_from(sample.time.as_micros()).unwrap_or(i64::MAX);
    Some(DecisionEvent {
        request_id: sample.request_id.to_string(),
        at: Time(micros),
        node: sample.node.to_string(),
        consumer: name(&sample.consumer),
        tenant: name(&sample.tenant),
        is_admitted: sample.is_admitted,
        policy: window.policy.to_string(),
        tier: window.tier.to_owned(),
        counted: window.limit.saturating_sub(window.remaining),
        limit: window.limit,
        sample: sample.to_json(),
    })
}

const EVENTS_AT_ONCE: usize = 500;
const RECORDED_EVERY: Duration = Duration::from_secs(1);
const LAST_WRITE: Duration = Duration::from_secs(1);
/// How often samples are written on.
const EVERY: Duration = Duration::from_millis(200);
