//! A relay between a client and a server that does what bad networks do: it delays, loses answers, goes deaf.
//!
//! It relays bytes and knows no protocol. Requests always reach the server, so a lost answer was acted upon.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A running relay. Its connections end with it.
pub struct Toxic {
    addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    to: SocketAddr,
    /// Nanoseconds that an answer takes longer.
    delay_ns: AtomicU64,
    /// The next answers of every connection are thrown away, and the connection with them.
    cuts: AtomicBool,
    /// Answers are thrown away; a connection that lost one is reset as soon as another would come over it.
    swallows: AtomicBool,
    /// Connections up to this number are deaf: nothing moves in either direction.
    frozen: Mutex<u64>,
    /// That number has changed, or the relay has ended.
    thawed: Condvar,
    accepted: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Toxic {
    /// A relay that does no harm yet.
    pub fn start(to: SocketAddr) -> Toxic {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            to,
            delay_ns: AtomicU64::new(0),
            cuts: AtomicBool::new(false),
            swallows: AtomicBool::new(false),
            frozen: Mutex::new(0),
            thawed: Condvar::new(),
            accepted: AtomicU64::new(0),
            streams: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || accept(&listener, &shared));
        Toxic { addr, state }
    }

    /// Where to connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Every answer takes so much longer.
    pub fn delay(&self, delay: Duration) {
        let delay_ns = u64::try_from(delay.as_nanos()).expect("a short time");
        self.state.delay_ns.store(delay_ns, Ordering::SeqCst);
    }

    /// From now on, what the server answers is thrown away and the connection reset.
    pub fn cut(&self, on: bool) {
        self.state.cuts.store(on, Ordering::SeqCst);
    }

    /// From now on, what the server answers is thrown away and the connections stay.
    pub fn swallow(&self, on: bool) {
        self.state.swallows.store(on, Ordering::SeqCst);
    }

    /// The connections there are go deaf; new ones work.
    pub fn freeze(&self) {
        self.state.set_frozen(self.accepted());
    }

    /// Every connection is deaf, those to come, too, until [`Toxic::freeze`] or [`Toxic::thaw`].
    pub fn freeze_all(&self) {
        self.state.set_frozen(u64::MAX);
    }

    /// Connections so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Deaf connections hear again: what was on its way arrives.
    pub fn thaw(&self) {
        self.state.set_frozen(0);
    }
}

impl State {
    fn set_frozen(&self, frozen: u64) {
        *self.frozen() = frozen;
        self.thawed.notify_all();
    }

    fn frozen(&self) -> MutexGuard<'_, u64> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while a connection is deaf. A client that tries again and again has hundreds of them.
    fn wait_to_hear(&self, number: u64) {
        let is_deaf = |frozen: &mut u64| number <= *frozen && !self.ended.load(Ordering::SeqCst);
        drop(self.thawed.wait_while(self.frozen(), is_deaf));
    }
}

impl Drop for Toxic {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.state.set_frozen(0);
        for stream in self.state.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
        // Wakes the listener, which ends.
        TcpStream::connect(self.addr).ok();
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming().flatten() {
        if state.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(state.to) else { continue };
        let number = state.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok();
            let kept = stream.try_clone().expect("descriptors can be had");
            state.streams.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        }
        let ends = [(&client, &server, false), (&server, &client, true)];
        for (from, to, is_answer) in ends {
            let from = from.try_clone().expect("descriptors can be had");
            let to = to.try_clone().expect("descriptors can be had");
            let state = Arc::clone(state);
            thread::spawn(move || relay(from, to, number, is_answer, &state));
        }
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, number: u64, is_answer: bool, state: &State) {
    let mut bytes = [0; 65_536];
    let mut has_swallowed = false;
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        let read = Instant::now();
        let delay = Duration::from_nanos(state.delay_ns.load(Ordering::SeqCst));
        if is_answer {
            thread::sleep(delay.saturating_sub(read.elapsed()));
        }
        state.wait_to_hear(number);
        if is_answer && state.swallows.load(Ordering::SeqCst) {
            has_swallowed = true;
            continue;
        }
        if has_swallowed {
            break;
        }
        if is_answer && state.cuts.load(Ordering::SeqCst) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
