//! An HTTP/1.1 client that sends exactly the bytes it is given and reads answers by the book.
//!
//! It follows no redirect, reuses nothing and corrects nothing: what it is told to send, it sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::{PATIENCE, text};

/// One connection.
pub struct Client<S = TcpStream> {
    stream: S,
    unread: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Its fields, names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// Its body, without the chunks it came in.
    pub body: Vec<u8>,
}

impl Response {
    /// The limit of the first window that it names.
    pub fn limit(&self) -> u64 {
        let shown = self.header("ratelimit-policy").expect("it names its windows");
        let (_, quota) = shown.split_once(";q=").expect("it names a quota");
        quota.split(';').next().and_then(|quota| quota.parse().ok()).expect("a number")
    }

    /// The only value of a field; panics where there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() <= 1, "{name} came {} times: {values:?}", values.len());
        values.first().copied()
    }

    /// Every value of a field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no {name} in {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, not a number"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        text(&self.body)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }
}

/// One GET on a connection of its own.
pub fn get(addr: SocketAddr, target: &str) -> Response {
    Client::connect(addr).get(target)
}

impl Client {
    /// Connects; reads and writes give up after [`PATIENCE`].
    pub fn connect(addr: SocketAddr) -> Client {
        Client::on(TcpStream::connect_timeout(&addr, PATIENCE).expect("somebody listens there"))
    }

    /// The same from an address of 127.0.0.0/8.
    pub fn connect_from(source: [u8; 4], addr: SocketAddr) -> Client {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("TCP is there");
        socket.bind(&SocketAddr::from((source, 0)).into()).expect("127/8 is loopback");
        socket.connect_timeout(&addr.into(), PATIENCE).expect("somebody listens there");
        Client::on(socket.into())
    }

    fn on(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("TCP has no-delay");
        Client::over(stream)
    }

    /// Ends the sending side; what is still said is not waited for.
    pub fn shutdown(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).ok();
    }

    /// The socket underneath.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks over a stream that is connected already.
    pub fn over(stream: S) -> Client<S> {
        Client { stream, unread: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).expect("the peer takes what is sent");
        self.stream.flush().expect("the peer takes what is sent");
        self
    }

    /// Sends bytes that the peer may refuse to read to their end.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).and_then(|()| self.stream.flush()).ok();
        self
    }

    /// Sends bytes and says whether the peer still takes them.
    pub fn is_taking(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).and_then(|()| self.stream.flush()).is_ok()
    }

    /// The stream itself; what was read ahead is dropped.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// GET and its answer.
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[], "")
    }

    /// A request with fields and a body of known length (none when empty), and its answer.
    pub fn request(&mut self, method: &str, target: &str, fields: &[&str], body: &str) -> Response {
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !fields.iter().any(|field| field.to_ascii_lowercase().starts_with("host:")) {
            head.push_str("Host: localhost\r\n");
        }
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.send(format!("{head}\r\n{body}"));
        if method == "HEAD" { self.response_to_head() } else { self.response() }
    }

    /// The next answer, interim ones (1xx but 101) passed over.
    pub fn response(&mut self) -> Response {
        loop {
            let head = self.head();
            if head.status < 200 && head.status != 101 {
                continue;
            }
            return self.body_of(head);
        }
    }

    /// The next answer, which has no body whatever its fields say.
    pub fn response_to_head(&mut self) -> Response {
        self.head()
    }

    /// The next head, interim ones too; the body is left unread.
    pub fn head(&mut self) -> Response {
        parsed(&self.head_text())
    }

    /// The next head as it came, without the empty line.
    pub fn head_text(&mut self) -> String {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            assert!(self.fill() > 0, "closed in a head: {:?}", text(&self.unread));
        };
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        text(&head[..end])
    }

    /// The next head as it came; `None` when the peer has closed before it began.
    pub fn try_head(&mut self) -> Option<String> {
        if self.unread.is_empty() && self.fill() == 0 {
            return None;
        }
        Some(self.head_text())
    }

    /// Exactly so many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            let more = self.fill();
            assert!(more > 0, "closed after {} of {count} bytes", self.unread.len());
        }
        self.unread.drain(..count).collect()
    }

    /// Reads and forgets so many bytes, without keeping them.
    pub fn discard(&mut self, count: u64) {
        let kept = self.unread.len() as u64;
        self.unread.drain(..kept.min(count) as usize);
        let mut left = count.saturating_sub(kept);
        let mut buffer = vec![0; 256 * 1024];
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = match self.stream.read(&mut buffer[..most]) {
                // A signal of another test's may end the wait.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.expect("the peer goes on sending"),
            };
            assert!(read > 0, "closed with {left} bytes to come");
            left -= read as u64;
        }
    }

    /// What comes until the peer closes; a reset ends it too.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.unread)
    }

    /// Whether the peer closes without another byte.
    pub fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    fn body_of(&mut self, mut head: Response) -> Response {
        if head.status == 204 || head.status == 304 || head.status == 101 {
            return head;
        }
        head.body = if head.header("transfer-encoding").is_some() {
            let (body, trailers) = self.chunked();
            head.headers.extend(trailers);
            body
        } else if let Some(length) = head.header("content-length") {
            let length = length.parse().expect("content-length is a number");
            self.bytes(length)
        } else {
            self.rest()
        };
        head
    }

    /// A body in chunks, and the trailers behind it.
    pub fn chunked(&mut self) -> (Vec<u8>, Vec<(String, String)>) {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16);
            let size = size.unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
            if size == 0 {
                break;
            }
            body.extend(self.bytes(size));
            assert_eq!(self.bytes(2), b"\r\n", "a chunk ends with a line break");
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return (body, trailers);
            }
            trailers.push(field(&line));
        }
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let end = loop {
            if let Some(at) = self.unread.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            assert!(self.fill() > 0, "closed in a line: {:?}", text(&self.unread));
        };
        let line: Vec<u8> = self.unread.drain(..end + 2).collect();
        text(&line[..end])
    }

    fn fill(&mut self) -> usize {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(read) => {
                self.unread.extend_from_slice(&buffer[..read]);
                read
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came for {PATIENCE:?} after {:?}", text(&self.unread))
            }
            // A reset and a TLS end without close_notify are both an end.
            Err(_) => 0,
        }
    }
}

/// Whether a peer closes a socket within the time, whatever it says before.
pub fn closes_within(socket: &TcpStream, time: Duration) -> bool {
    socket.set_read_timeout(Some(time)).expect("a socket takes a timeout");
    let mut socket = socket;
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// A head as it came.
fn parsed(head: &str) -> Response {
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status line: {status_line:?}"));
    let headers = lines.filter(|line| !line.is_empty()).map(field).collect();
    Response { status, headers, body: Vec::new() }
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line:?}"));
    (name.to_ascii_lowercase(), value.trim().to_owned())
}
