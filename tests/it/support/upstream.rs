//! An upstream written for one test: it records what reaches it and answers exactly the bytes it is told.
//!
//! A hostile one is a closure over the raw socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Client, PATIENCE};

/// A listening upstream. It stops accepting when the test ends.
pub struct Upstream {
    addr: SocketAddr,
    requests: Mutex<Receiver<Recorded>>,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
}

/// One request as it came.
#[derive(Debug)]
pub struct Recorded {
    /// Its first line.
    pub line: String,
    /// Its fields, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body, without the chunks it came in.
    pub body: Vec<u8>,
}

impl Recorded {
    /// Every value of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The values of a field, joined as a list.
    pub fn header(&self, name: &str) -> Option<String> {
        let values = self.all(name);
        (!values.is_empty()).then(|| values.join(", "))
    }
}

impl Upstream {
    /// Answers every request with these bytes, on as many connections as come.
    pub fn answering(answer: impl AsRef<[u8]>) -> Upstream {
        let answer = answer.as_ref().to_vec();
        Upstream::replying(move |_| answer.clone())
    }

    /// Answers 200 and `ok`.
    pub fn ok() -> Upstream {
        Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    }

    /// Answers every request with what the closure makes of it.
    pub fn replying(reply: impl Fn(&Recorded) -> Vec<u8> + Send + Sync + 'static) -> Upstream {
        let (tx, rx) = mpsc::channel();
        let tx = Mutex::new(tx);
        let mut upstream = Upstream::raw(move |stream| {
            let mut peer = Client::over(stream);
            while let Some(request) = receive(&mut peer) {
                let answer = reply(&request);
                tx.lock().unwrap_or_else(PoisonError::into_inner).send(request).ok();
                peer.try_send(answer);
            }
        });
        upstream.requests = Mutex::new(rx);
        upstream
    }

    /// Hands every connection to the closure, each in a thread of its own.
    pub fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Upstream {
        Upstream::raw_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve)
    }

    /// The same at an address of loopback.
    pub fn raw_at(addr: SocketAddr, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind(addr).expect("loopback has a free port");
        let addr = listener.local_addr().expect("it is bound");
        let (connections, stopping) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop, serve) = (Arc::clone(&connections), Arc::clone(&stopping), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                count.fetch_add(1, Ordering::SeqCst);
                stream.set_read_timeout(Some(PATIENCE * 4)).expect("a socket takes a timeout");
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Upstream { addr, requests: Mutex::new(mpsc::channel().1), connections, stopping }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Connections it has accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The next request that reaches it.
    pub fn request(&self) -> Recorded {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.recv_timeout(PATIENCE).expect("a request reaches the upstream")
    }

    /// Whether no further request comes within a moment.
    pub fn is_quiet(&self) -> bool {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(requests.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        TcpStream::connect_timeout(&self.addr, PATIENCE).ok();
    }
}

/// Reads one request; `None` when the peer is done.
pub fn receive<S: Read + Write>(peer: &mut Client<S>) -> Option<Recorded> {
    let head = peer.try_head()?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = Recorded { line, headers, body: Vec::new() };
    if request.header("transfer-encoding").is_some() {
        let (body, trailers) = peer.chunked();
        request.body = body;
        request.headers.extend(trailers);
    } else if let Some(length) = request.header("content-length") {
        request.body = peer.bytes(length.parse().expect("content-length is a number"));
    }
    Some(request)
}

/// Resets the connection: unread bytes and an abortive close make the kernel send RST.
pub fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    socket.set_linger(Some(Duration::ZERO)).expect("a socket takes a linger time");
    drop(socket);
}
