//! The way of spans from the workers to the collector: a bounded queue, and one task that sends batches. Nobody waits for
//! it; what finds no room or no collector is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::attribute::Attributes;
use super::config::Config;
use super::message::Message;
use super::otlp::OtlpCollector;
use super::reply::{CollectorReply, Error};
use super::span::FinishedSpan;
use base::log_lines::Outage;
use net::fetch::Connect;

#[derive(Clone, Debug)]
pub struct SpanQueue {
    queue: mpsc::Sender<FinishedSpan>,
    dropped: metrics::SharedCounter,
    /// Spans that found no room, until the log has said so.
    crowded_out: Arc<AtomicU64>,
}

impl SpanQueue {
    /// A queue that nobody reads, for tests.
    pub fn nowhere() -> SpanQueue {
        SpanQueue {
            queue: mpsc::channel(1).0,
            dropped: metrics::SharedCounter::default(),
            crowded_out: Arc::default(),
        }
    }

    /// Leaves a span. It neither waits nor fails: one that finds no room is counted as dropped.
    pub fn offer(&self, span: FinishedSpan) {
        if self.queue.try_send(span).is_err() {
            self.dropped.add(1);
            self.crowded_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends spans to the collector of the configuration in force.
pub struct Exporter {
    spans: SpanQueue,
    connect: Connect,
    phase: watch::Sender<ExporterPhase>,
    task: JoinHandle<()>,
}

#[derive(Clone, Default)]
struct ExporterPhase {
    /// Where spans go, and what says whose they are. `None`: they are dropped.
    target: Option<Arc<(OtlpCollector, Message)>>,
    is_closing: bool,
}

impl Exporter {
    /// An exporter without a collector. It must be called within a runtime.
    pub fn start(connect: Connect, metrics: &metrics::SpanCounters) -> Exporter {
        let (queue, spans) = mpsc::channel(SPANS_QUEUED_MAX);
        let (phase, heard) = watch::channel(ExporterPhase::default());
        let sender = SpanSender {
            spans,
            phase: heard,
            metrics: metrics.clone(),
            crowded_out: Arc::default(),
            failing: None,
            crowded: None,
            is_warned: false,
            under_way: 0,
        };
        let crowded_out = Arc::clone(&sender.crowded_out);
        let spans = SpanQueue { queue, dropped: metrics.dropped.clone(), crowded_out };
        Exporter { spans, connect, phase, task: tokio::spawn(sender.run()) }
    }

    pub fn spans(&self) -> &SpanQueue {
        &self.spans
    }

    /// Spans go there from now on, from a node of this name. `None`: those that come are dropped.
    pub fn switch(&self, config: Option<&Config>, node: &str) {
        let target = config.and_then(|config| {
            Some(Arc::new((OtlpCollector::new(config, &self.connect)?, resource(&config.service, node))))
        });
        self.phase.send_modify(|phase| phase.target = target);
    }

    /// Sends what is there, at most for so long; the rest is counted as dropped.
    pub async fn close(self, within: Duration) {
        self.phase.send_modify(|phase| phase.is_closing = true);
        let Exporter { mut task, .. } = self;
        if timeout(within, &mut task).await.is_err() {
            // Ended, so that what is left is counted as dropped.
            task.abort();
        }
    }
}

struct SpanSender {
    spans: mpsc::Receiver<FinishedSpan>,
    phase: watch::Receiver<ExporterPhase>,
    metrics: metrics::SpanCounters,
    crowded_out: Arc<AtomicU64>,
    /// `None`: the last batch went well.
    failing: Option<ExportFailure>,
    /// Spans lost since more come than the collector takes; `None`: all find room.
    crowded: Option<u64>,
    /// The collector took the last batch, but not all of it or with a warning, which was logged.
    is_warned: bool,
    /// Spans of the batch that is being sent.
    under_way: u64,
}

#[derive(Default)]
struct ExportFailure {
    lost: u64,
    outage: Outage,
}

impl SpanSender {
    async fn run(mut self) {
        let mut batch = Vec::new();
        let mut phase = self.phase.clone();
        loop {
            tokio::select! {
                received = self.spans.recv_many(&mut batch, BATCH_SPANS_MAX) => {
                    if received == 0 {
                        return;
                    }
                    self.gather(&mut batch).await;
                    self.send(std::mem::take(&mut batch)).await;
                }
                // The workers have ended: what they left is sent, and nothing more is taken.
                () = closing(&mut phase) => {
                    self.spans.close();
                    while self.spans.recv_many(&mut batch, BATCH_SPANS_MAX).await > 0 {
                        self.send(std::mem::take(&mut batch)).await;
                    }
                    return;
                }
            }
        }
    }

    /// Waits a moment for more spans of the same batch. It looks for them now and then, because who waits for a span
    /// is woken by each, and so is a processor.
    async fn gather(&mut self, batch: &mut Vec<FinishedSpan>) {
        let due = Instant::now() + BATCH_EVERY;
        let mut phase = self.phase.clone();
        while batch.len() + self.spans.len() < BATCH_SPANS_MAX && Instant::now() < due {
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = closing(&mut phase) => break,
            }
        }
        while batch.len() < BATCH_SPANS_MAX
            && let Ok(span) = self.spans.try_recv()
        {
            batch.push(span);
        }
    }

    /// Sends a batch, again if the collector is away or busy, and counts what became of it.
    async fn send(&mut self, spans: Vec<FinishedSpan>) {
        let count = spans.len() as u64;
        let Some(target) = self.phase.borrow().target.clone() else {
            // Reset, because nobody expects them anywhere.
            self.crowded_out.store(0, Ordering::Relaxed);
            return self.metrics.dropped.add(count);
        };
        // Noted, so that these are counted as lost if the task ends meanwhile.
        self.under_way = count;
        let (target, resource) = &*target;
        let request = request(resource, &spans);
        let mut pause = PAUSE_FIRST;
        for attempt in 1.. {
            let error = match target.send(&request).await {
                Ok(taken) => return self.taken(count, &taken),
                Err(error) => error,
            };
            let again = match &error {
                Error::Away(_) => Some(pause),
                // At least the pause, because one that asks for no wait, or for one that is over by its clock, is
                // still busy.
                Error::Busy { again, .. } => Some(again.unwrap_or_default().max(pause).min(PAUSE_MAX)),
                Error::Refused { .. } => None,
            };
            match again.filter(|_| attempt < ATTEMPTS_MAX) {
                Some(wait) if self.rest(wait).await => pause *= 2,
                _ => return self.lose(count, &error),
            }
        }
    }

    /// Waits before another attempt; false if there is no time for one.
    async fn rest(&self, wait: Duration) -> bool {
        let mut phase = self.phase.clone();
        tokio::select! {
            () = sleep(wait) => true,
            () = closing(&mut phase) => false,
        }
    }

    fn taken(&mut self, count: u64, taken: &CollectorReply) {
        self.under_way = 0;
        let rejected = taken.rejected.min(count);
        self.metrics.exported.add(count - rejected);
        self.metrics.dropped.add(rejected);
        let crowded_out = self.crowded_out.swap(0, Ordering::Relaxed);
        match self.failing.take() {
            Some(ExportFailure { lost, .. }) => {
                tracing::info!(spans_lost = lost + crowded_out, "trace collector accepts spans again");
            }
            None => self.look_at_the_crowd(crowded_out),
        }
        let is_warned = rejected > 0 || !taken.words.is_empty();
        if is_warned && !self.is_warned {
            let says = &taken.words;
            tracing::warn!(rejected, %says, "trace collector rejected spans of a batch, or sent a warning");
        }
        self.is_warned = is_warned;
    }

    /// Says when spans begin to find no room in the queue while the collector takes what it is sent, and when it has caught
    /// up. `crowded_out`: so many found no room since it took the batch before.
    fn look_at_the_crowd(&mut self, crowded_out: u64) {
        match self.crowded {
            None if crowded_out > 0 => {
                tracing::warn!("trace queue is full: spans are dropped until the collector keeps up");
                self.crowded = Some(crowded_out);
            }
            Some(lost) if crowded_out == 0 && self.spans.len() < BATCH_SPANS_MAX => {
                tracing::info!(spans_lost = lost, "trace queue has room again");
                self.crowded = None;
            }
            Some(lost) => self.crowded = Some(lost + crowded_out),
            None => {}
        }
    }

    fn lose(&mut self, count: u64, error: &Error) {
        self.under_way = 0;
        self.metrics.dropped.add(count);
        let count = count + self.crowded_out.swap(0, Ordering::Relaxed);
        let failing = self.failing.get_or_insert_default();
        let (is_first, spans_lost) = (!failing.outage.goes_on(), failing.lost);
        failing.lost += count;
        match failing.outage.is_news(&error.kind()) {
            true if is_first => {
                tracing::warn!(%error, "trace export failed: spans are dropped until it works")
            }
            true => tracing::warn!(%error, spans_lost, "trace export still fails, for another reason"),
            false => {}
        }
    }
}

impl Drop for SpanSender {
    fn drop(&mut self) {
        // Closed first, so that no span comes while they are counted.
        self.spans.close();
        let mut left = std::mem::take(&mut self.under_way);
        while self.spans.try_recv().is_ok() {
            left += 1;
        }
        self.metrics.dropped.add(left);
        let lost = left
            + self.failing.take().map_or(0, |failing| failing.lost)
            + self.crowded.take().unwrap_or(0)
            + self.crowded_out.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(spans_lost = lost, "trace collector did not accept all spans before shutdown");
        }
    }
}

/// Waits until the exporter is being closed, or is gone.
async fn closing(phase: &mut watch::Receiver<ExporterPhase>) {
    // Dropped at once, because the guard that it gives must not be held across an await.
    let _ = phase.wait_for(|phase| phase.is_closing).await;
}

/// Whose spans they are (`Resource`).
fn resource(service: &str, node: &str) -> Message {
    let mut resource = Message::default();
    let mut attributes = Attributes::of(&mut resource, RESOURCE_ATTRIBUTES);
    attributes.text("service.name", service.as_bytes());
    attributes.text("service.version", env!("CARGO_PKG_VERSION").as_bytes());
    attributes.text("service.instance.id", node.as_bytes());
    resource
}

/// `ExportTraceServiceRequest`: one `ResourceSpans` of one `ScopeSpans`.
fn request(resource: &Message, spans: &[FinishedSpan]) -> Bytes {
    let bytes =
        spans.iter().map(|span| span.message().len() + SPAN_BYTES_MORE).sum::<usize>() + resource.len();
    let room = || Message::with_capacity(bytes + REQUEST_BYTES_MORE);
    let mut scope = Message::default();
    scope.bytes(SCOPE_NAME, b"sluicegate");
    scope.bytes(SCOPE_VERSION, env!("CARGO_PKG_VERSION").as_bytes());
    let mut of_scope = room();
    of_scope.message(OWNER, &scope);
    spans.iter().for_each(|span| of_scope.message(OWNED, span.message()));
    of_scope.bytes(SCHEMA_URL, SCHEMA.as_bytes());
    let mut of_resource = room();
    of_resource.message(OWNER, resource);
    of_resource.message(OWNED, &of_scope);
    of_resource.bytes(SCHEMA_URL, SCHEMA.as_bytes());
    let mut request = room();
    request.message(RESOURCE_SPANS, &of_resource);
    request.into_bytes()
}

const RESOURCE_ATTRIBUTES: u32 = 1;
/// Fields of `InstrumentationScope`.
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
/// Fields of `ResourceSpans`, and of `ScopeSpans`: whose they are, what is theirs.
const OWNER: u32 = 1;
const OWNED: u32 = 2;
const SCHEMA_URL: u32 = 3;
const RESOURCE_SPANS: u32 = 1;
/// Bytes before a span in a request, at most.
const SPAN_BYTES_MORE: usize = 8;
/// Bytes of a request beside its spans and its resource, at most.
const REQUEST_BYTES_MORE: usize = 512;
/// The semantic conventions that attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Spans that may wait for the collector: some MiB.
const SPANS_QUEUED_MAX: usize = 4_096;
const BATCH_SPANS_MAX: usize = 512;
/// How long a span waits for others of its batch.
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether a batch is full. Within it the queue takes what 80,000 requests a second leave.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ATTEMPTS_MAX: u32 = 4;
/// The pause after the first attempt; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
