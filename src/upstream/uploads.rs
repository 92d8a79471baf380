//! Bodies of requests that are still on their way while they hold a connection: how fast they move, and which of them
//! yields its connection if others wait.
//!
//! A client that sends its body in drips would otherwise hold a connection for as long as it likes, and a thousand
//! such clients all of them. Nothing here costs a request whose body was there before it took its connection.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use base::clock;

/// How far a body is: written by the worker that takes it from the client, read by any worker.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes taken from the client since the connection was there.
    moved: AtomicU64,
    /// When it ended, on the monotonic scale; 0: it has not.
    ended_ns: AtomicU64,
    /// Whether the next move is the client's.
    is_awaited: AtomicBool,
    /// Where the present measurement begins: an instant on the monotonic scale, and the bytes then.
    since_ns: AtomicU64,
    since_moved: AtomicU64,
}

impl Progress {
    /// So many bytes came, and are the server's to take now.
    pub fn move_on(&self, bytes: u64) {
        // One thread writes: no need for a locked addition.
        self.moved.store(self.moved.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        self.is_awaited.store(false, Ordering::Relaxed);
    }

    /// Nothing is there: the client is to send.
    pub fn wait(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// The last byte came, or nobody wants the rest.
    pub fn end(&self) {
        if !self.is_over() {
            self.ended_ns.store(clock::now_ns(), Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.ended_ns.load(Ordering::Relaxed) > 0
    }

    fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn measure_from(&self, now_ns: u64, moved: u64) {
        self.since_ns.store(now_ns, Ordering::Relaxed);
        self.since_moved.store(moved, Ordering::Relaxed);
    }

    /// Bytes a second of late.
    fn rate(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)).max(MEASURED_NS_MIN);
        let moved = self.moved().saturating_sub(self.since_moved.load(Ordering::Relaxed));
        (u128::from(moved) * 1_000_000_000 / u128::from(elapsed_ns)) as u64
    }
}

/// The bodies on their way to one server, of all workers.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    holders: Mutex<Vec<UploadHolder>>,
    /// Those that were let in and have no connection yet.
    entering: AtomicUsize,
    /// Until when a part of the connections is kept free of them, on the monotonic scale.
    pressed_until_ns: AtomicU64,
}

/// A body that holds a connection.
#[derive(Debug)]
struct UploadHolder {
    progress: Arc<Progress>,
    began_ns: u64,
    yields: oneshot::Sender<()>,
}

impl Uploads {
    fn enter(&self, progress: &Arc<Progress>, now_ns: u64) -> oneshot::Receiver<()> {
        let (yields, asked) = oneshot::channel();
        let mut holders = self.under_way();
        holders.push(UploadHolder { progress: Arc::clone(progress), began_ns: now_ns, yields });
        asked
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<UploadHolder>> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|holder| !holder.progress.is_over() && !holder.yields.is_closed());
        holders
    }

    /// Another request finds all of `connections` in use. Slow bodies yield: one, and as many as it takes to keep a part of
    /// the connections free of them for a while.
    pub(super) fn press(&self, connections: usize) {
        let now_ns = clock::now_ns();
        self.pressed_until_ns.store(now_ns + PRESSED_NS, Ordering::Relaxed);
        let mut holders = self.under_way();
        let surplus = holders.len().saturating_sub(most(connections)).max(1);
        for _ in 0..surplus {
            if !ask_slowest_to_yield(&mut holders, now_ns, Some(SLOW)) {
                return;
            }
        }
    }

    /// Whether other requests have lately waited.
    pub(super) fn is_pressed(&self) -> bool {
        clock::now_ns() < self.pressed_until_ns.load(Ordering::Relaxed)
    }

    /// Lets one more in to hold one of `connections`: any number, unless other requests have lately waited. It is to be
    /// told when it has one.
    pub(super) fn admit(&self, connections: usize) -> bool {
        let holders = self.under_way();
        let is_admitted =
            !self.is_pressed() || holders.len() + self.entering.load(Ordering::Relaxed) < most(connections);
        if is_admitted {
            self.entering.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// One that was let in has its connection, or will have none.
    pub(super) fn entered(&self) {
        self.entering.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks the body that moves least to give its connection up; of several, the oldest. With `below`, only if it
    /// moves fewer bytes a second than that.
    pub(super) fn ask_slowest_to_yield(&self, below: Option<u64>) {
        ask_slowest_to_yield(&mut self.under_way(), clock::now_ns(), below);
    }
}

fn ask_slowest_to_yield(holders: &mut Vec<UploadHolder>, now_ns: u64, below: Option<u64>) -> bool {
    let ranks = holders.iter().map(|holder| (holder.progress.rate(now_ns), holder.began_ns)).enumerate();
    let Some((least, (rate, _))) = ranks.min_by_key(|(_, rank)| *rank) else { return false };
    let is_asked = below.is_none_or(|below| rate < below);
    if is_asked {
        let _ = holders.swap_remove(least).yields.send(());
    }
    is_asked
}

/// How many bodies may hold one of so many connections while others wait.
fn most(connections: usize) -> usize {
    connections - connections.div_ceil(KEPT_FREE_PART).min(connections - 1)
}

/// What a body on its way is held to.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes a second that come at least, over [`RATE_OVER`]; 0: none.
    pub rate_min: u64,
    /// How long the client may send nothing.
    pub stall: Duration,
    /// How long the server may take nothing, or not answer once it has everything.
    pub response: Duration,
    /// When all must be over.
    pub ends: Option<Instant>,
}

/// A body on its way, as the request that sends it watches it.
#[derive(Debug)]
pub(super) struct Upload {
    progress: Arc<Progress>,
    bounds: Bounds,
    /// Ready when it is to yield; `None` if connections are shared and none is held.
    asked: Option<oneshot::Receiver<()>>,
    /// Since when nothing moved, and what had moved by then.
    still: (Instant, u64),
    /// What had moved at each of the last looks while the client was to send.
    looks: VecDeque<(Instant, u64)>,
    /// Holder by a body that took its connection before its first bytes were there.
    _early: Option<OwnedSemaphorePermit>,
}

/// Why an exchange ends while its request's body is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadTimeout {
    /// The client is too slow, or its body yielded to others.
    Client,
    /// The server took too long.
    Server,
}

impl Upload {
    pub(super) fn new(
        progress: Arc<Progress>,
        bounds: Bounds,
        uploads: Option<&Uploads>,
        early: Option<OwnedSemaphorePermit>,
        now: Instant,
    ) -> Upload {
        let (now_ns, moved) = (clock::ns_of(now), progress.moved());
        progress.measure_from(now_ns, moved);
        let asked = uploads.map(|uploads| uploads.enter(&progress, now_ns));
        let looks = VecDeque::with_capacity(LOOKS);
        Upload { progress, bounds, asked, still: (now, moved), looks, _early: early }
    }

    pub(super) fn first_look(&self) -> Instant {
        self.still.0 + LOOK_EVERY.min(self.bounds.response)
    }

    /// Ready when it is to yield to other requests.
    pub(super) fn poll_yield(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.asked {
            Some(asked) => match Pin::new(asked).poll(cx) {
                Poll::Ready(Ok(())) => Poll::Ready(()),
                // Whoever could have asked has seen that it is over.
                Poll::Ready(Err(_)) => {
                    self.asked = None;
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            },
            None => Poll::Pending,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.progress.is_over()
    }

    /// Looks at it while no answer has come, and says when to look again. The server's time begins with the last byte
    /// of the body; until then it is only expected to take what comes.
    pub(super) fn look(&mut self, now: Instant) -> Result<Instant, UploadTimeout> {
        if self.bounds.ends.is_some_and(|ends| now >= ends) {
            return Err(UploadTimeout::Server);
        }
        let ended_ns = self.progress.ended_ns.load(Ordering::Relaxed);
        if ended_ns > 0 {
            let since = Duration::from_nanos(clock::ns_of(now).saturating_sub(ended_ns));
            let left = self.bounds.response.checked_sub(since).filter(|left| !left.is_zero());
            return left.map(|left| self.until(now + left)).ok_or(UploadTimeout::Server);
        }
        self.look_at_rate(now)?;
        let still_for = now.saturating_duration_since(self.still.0);
        let is_awaited = self.progress.is_awaited.load(Ordering::Relaxed);
        match self.has_moved(now) {
            false if is_awaited && still_for >= self.bounds.stall => Err(UploadTimeout::Client),
            false if !is_awaited && still_for >= self.bounds.response => Err(UploadTimeout::Server),
            _ => Ok(self.until(now + LOOK_EVERY.min(self.bounds.response))),
        }
    }

    /// Whether it has moved since this was last asked.
    pub(super) fn has_moved(&mut self, now: Instant) -> bool {
        let moved = self.progress.moved();
        let has_moved = moved != self.still.1;
        if has_moved {
            self.still = (now, moved);
        }
        has_moved
    }

    /// Whether the client sends fast enough. Time in which the server takes nothing is not the client's.
    pub(super) fn look_at_rate(&mut self, now: Instant) -> Result<(), UploadTimeout> {
        let moved = self.progress.moved();
        if !self.progress.is_awaited.load(Ordering::Relaxed) {
            self.looks.clear();
            return Ok(());
        }
        if self.looks.is_empty() {
            // The first look of a stretch looks back to where the stretch began at the earliest.
            self.looks.push_back(self.still);
        }
        self.looks.push_back((now, moved));
        while self.looks.get(1).is_some_and(|second| second.0 + RATE_OVER <= now) {
            self.looks.pop_front();
        }
        let (since, before) = self.looks[0];
        self.progress.measure_from(clock::ns_of(since), before);
        let over = now.saturating_duration_since(since);
        let expected = u128::from(self.bounds.rate_min) * over.as_millis() / 1_000;
        match over >= RATE_OVER && u128::from(moved - before) < expected {
            true => Err(UploadTimeout::Client),
            false => Ok(()),
        }
    }

    fn until(&self, at: Instant) -> Instant {
        self.bounds.ends.map_or(at, |ends| ends.min(at))
    }
}

/// How often a body on its way is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The stretch of time over which a body has its least rate.
pub const RATE_OVER: Duration = Duration::from_secs(5);
/// Looks in [`RATE_OVER`], and one at either end.
const LOOKS: usize = 8;
/// A rate is taken over no less, so that a body of a moment ago is not the slowest of all.
const MEASURED_NS_MIN: u64 = 100_000_000;
/// One in so many connections is kept free of bodies on their way while others wait.
const KEPT_FREE_PART: usize = 8;
/// For so long after one had to.
const PRESSED_NS: u64 = 10_000_000_000;
/// A body slower than this yields as soon as others wait, bytes a second; a faster one when they have waited in vain for
/// half of their time.
pub(super) const SLOW: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        rate_min: 1024,
        stall: Duration::from_secs(30),
        response: Duration::from_secs(15),
        ends: None,
    };

    fn upload(bounds: Bounds) -> (Upload, Arc<Progress>, Instant) {
        let (progress, now) = (Arc::new(Progress::default()), clock::instant());
        (Upload::new(Arc::clone(&progress), bounds, None, None, now), progress, now)
    }

    /// Looks once a second while `bytes` come in each; the second in which it ended, of sixty.
    fn ends_at(bounds: Bounds, bytes: impl Fn(u64) -> u64) -> Option<(u64, UploadTimeout)> {
        let (mut upload, progress, began) = upload(bounds);
        (1..=60).find_map(|second| {
            if bytes(second) > 0 {
                progress.move_on(bytes(second));
            }
            progress.wait();
            upload.look(began + Duration::from_secs(second)).err().map(|overdue| (second, overdue))
        })
    }

    #[test]
    fn a_body_has_its_least_rate_over_any_five_seconds() {
        assert_eq!(ends_at(BOUNDS, |_| 1024), None);
        assert_eq!(ends_at(BOUNDS, |_| 1023), Some((5, UploadTimeout::Client)));
        assert_eq!(ends_at(BOUNDS, |_| 0), Some((5, UploadTimeout::Client)));
        assert_eq!(ends_at(BOUNDS, |second| 5 * 1024 * u64::from(second % 5 == 0)), None);
        let stops = |second| if second <= 10 { 50_000 } else { 0 };
        assert_eq!(ends_at(BOUNDS, stops), Some((15, UploadTimeout::Client)));
        let none = Bounds { rate_min: 0, ..BOUNDS };
        assert_eq!(ends_at(none, |second| u64::from(second % 29 == 0)), None);
        assert_eq!(ends_at(none, |_| 0), Some((30, UploadTimeout::Client)));
    }

    #[test]
    fn what_the_server_does_not_take_is_not_the_client_s_delay() {
        let (mut upload, progress, began) = upload(BOUNDS);
        progress.move_on(64);
        assert!((1..=15).all(|second| upload.look(began + Duration::from_secs(second)).is_ok()));
        assert_eq!(upload.look(began + Duration::from_secs(16)), Err(UploadTimeout::Server));
    }

    #[test]
    fn the_server_s_time_begins_with_the_end_of_the_body() {
        let (mut upload, progress, began) = upload(BOUNDS);
        progress.move_on(64);
        progress.end();
        let ended = clock::instant();
        let next = upload.look(began + Duration::from_secs(1)).expect("it has 15 seconds");
        assert!(next >= began + BOUNDS.response && next <= ended + BOUNDS.response);
        assert_eq!(upload.look(ended + BOUNDS.response), Err(UploadTimeout::Server));
    }

    #[test]
    fn the_end_of_all_ends_a_body_that_moves() {
        let (mut upload, progress, began) = upload(BOUNDS);
        upload.bounds.ends = Some(began + Duration::from_secs(3));
        progress.move_on(1 << 20);
        assert_eq!(upload.look(began + Duration::from_secs(2)), Ok(began + Duration::from_secs(3)));
        progress.move_on(1 << 20);
        assert_eq!(upload.look(began + Duration::from_secs(3)), Err(UploadTimeout::Server));
    }

    #[test]
    fn the_one_that_moves_least_gives_way_and_of_several_the_oldest() {
        let uploads = Uploads::default();
        let now_ns = clock::now_ns() - 10 * MEASURED_NS_MIN;
        let enter = |age: u64, moved: u64| {
            let progress = Arc::new(Progress::default());
            progress.measure_from(now_ns - age, 0);
            let asked = uploads.enter(&progress, now_ns - age);
            progress.move_on(moved);
            (progress, asked)
        };
        let mut held = [enter(3, 1 << 20), enter(1, 0), enter(2, 0), enter(4, 0)];
        held[3].0.end();
        let mut gone = Vec::new();
        for below in [Some(SLOW), Some(SLOW), Some(SLOW), None, None] {
            uploads.ask_slowest_to_yield(below);
            gone.push(held.iter_mut().position(|(_, asked)| asked.try_recv().is_ok()));
        }
        assert_eq!(gone, [Some(2), Some(1), None, Some(0), None]);
    }

    #[test]
    fn while_others_wait_a_part_of_the_connections_is_kept_free() {
        let uploads = Uploads::default();
        let enter = || {
            let progress = Arc::new(Progress::default());
            let asked = uploads.enter(&progress, clock::now_ns());
            (progress, asked)
        };
        let mut held: Vec<_> = (0..16).map(|_| enter()).collect();
        assert!(uploads.admit(16), "nobody waits");
        uploads.entered();
        uploads.press(16);
        let gone = held.iter_mut().filter_map(|(_, asked)| asked.try_recv().ok()).count();
        assert_eq!(gone, 2);
        assert!(!uploads.admit(16));
        held[10].0.end();
        assert!(uploads.admit(16) && !uploads.admit(16), "one is free");
        uploads.entered();
        assert!(uploads.admit(16));
        let small: Vec<usize> = [1, 2, 3, 8, 9, 1024].into_iter().map(most).collect();
        assert_eq!(small, [1, 1, 2, 7, 7, 896]);
    }
}
