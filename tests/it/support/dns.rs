//! A name server of a test's own, over UDP and TCP on one port of loopback. It answers what it is told, well or not.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A record.
#[derive(Clone, Debug)]
pub enum Record {
    /// An address.
    A(Ipv4Addr),
    /// An address of IPv6.
    Aaaa(Ipv6Addr),
    /// Priority, weight, port and target of a service.
    Srv(u16, u16, u16, &'static str),
    /// Another name.
    Alias(&'static str),
}

/// What is answered to questions for one name.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These, for so many seconds; of them those of the type that is asked for.
    Records(u32, Vec<Record>),
    /// SERVFAIL.
    Failure,
    /// Bytes that are no answer behind the question's number.
    Nonsense,
    /// Nothing.
    Silence,
}

/// A name server. It stops when the test ends.
pub struct Dns {
    addr: SocketAddr,
    known: Arc<Known>,
    stopping: Arc<AtomicBool>,
}

#[derive(Default)]
struct Known {
    replies: Mutex<BTreeMap<String, Reply>>,
    questions: AtomicUsize,
}

impl Dns {
    /// One that knows no name.
    pub fn start() -> Dns {
        let (udp, tcp) = pair();
        let addr = udp.local_addr().expect("it is bound");
        let (known, stopping) = (Arc::new(Known::default()), Arc::new(AtomicBool::new(false)));
        let (over_udp, stop) = (Arc::clone(&known), Arc::clone(&stopping));
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut question) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                if let Some(answer) = over_udp.answer(&question[..length], UDP_BYTES_MAX) {
                    udp.send_to(&answer, from).ok();
                }
            }
        });
        let (over_tcp, stop) = (Arc::clone(&known), Arc::clone(&stopping));
        thread::spawn(move || {
            for stream in tcp.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let known = Arc::clone(&over_tcp);
                thread::spawn(move || known.serve(stream));
            }
        });
        Dns { addr, known, stopping }
    }

    /// From now on questions for this name are answered so.
    pub fn set(&self, name: &str, reply: Reply) {
        self.known.replies.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), reply);
    }

    /// The name has these addresses, for a second.
    pub fn addresses(&self, name: &str, addresses: &[[u8; 4]]) {
        let records = addresses.iter().map(|address| Record::A((*address).into())).collect();
        self.set(name, Reply::Records(1, records));
    }

    /// Questions that have come so far.
    pub fn questions(&self) -> usize {
        self.known.questions.load(Ordering::SeqCst)
    }

    /// The section of a gateway's configuration that asks this one.
    pub fn config(&self) -> String {
        format!("[dns]\nservers = [\"{}\"]\n", self.addr)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        TcpStream::connect(self.addr).ok();
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(&[0], self.addr)).ok();
    }
}

/// Both kinds of sockets on one port.
fn pair() -> (UdpSocket, TcpListener) {
    let free = || {
        let udp = UdpSocket::bind("127.0.0.1:0").ok()?;
        let tcp = TcpListener::bind(udp.local_addr().ok()?).ok()?;
        Some((udp, tcp))
    };
    (0..100).find_map(|_| free()).expect("loopback has a port that is free for both")
}

impl Known {
    fn serve(&self, mut stream: TcpStream) {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut question).is_err() {
                return;
            }
            let Some(answer) = self.answer(&question, usize::from(u16::MAX)) else { return };
            let length = u16::try_from(answer.len()).expect("it was cut to fit");
            if stream.write_all(&[&length.to_be_bytes(), &*answer].concat()).is_err() {
                return;
            }
        }
    }

    /// The bytes of an answer; one that is longer than `max` is cut to nothing, so that the question comes again by TCP.
    fn answer(&self, question: &[u8], max: usize) -> Option<Vec<u8>> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let (name, end) = name(question, 12)?;
        let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
        let asked = &question[12..end + 4];
        let reply = self.replies.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        let (code, ttl, records) = match reply {
            None => (NXDOMAIN, 0, Vec::new()),
            Some(Reply::Failure) => (SERVFAIL, 0, Vec::new()),
            Some(Reply::Silence) => return None,
            Some(Reply::Nonsense) => return Some([&question[..2], &[0xff; 40]].concat()),
            Some(Reply::Records(ttl, records)) => (0, ttl, records),
        };
        let data: Vec<(u16, Vec<u8>)> = records.iter().map(Record::data).collect();
        let data: Vec<_> = data.into_iter().filter(|(of, _)| *of == kind || *of == CNAME).collect();
        let mut answers = Vec::new();
        for (of, data) in &data {
            answers.extend([0xc0, 12]);
            answers.extend([&of.to_be_bytes(), &[0, 1][..], &ttl.to_be_bytes()].concat());
            answers.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
            answers.extend(data);
        }
        let is_cut = 12 + asked.len() + answers.len() > max;
        let count = if is_cut { 0 } else { u16::try_from(data.len()).expect("few") };
        let flags: u16 = 0x8180 | if is_cut { 0x0200 } else { 0 } | code;
        let head = [flags, 1, count, 0, 0].map(u16::to_be_bytes).concat();
        let answers = if is_cut { &[][..] } else { &answers };
        Some([&question[..2], &head, asked, answers].concat())
    }
}

impl Record {
    fn data(&self) -> (u16, Vec<u8>) {
        match self {
            Record::A(address) => (1, address.octets().to_vec()),
            Record::Aaaa(address) => (28, address.octets().to_vec()),
            Record::Srv(priority, weight, port, target) => {
                let numbers = [*priority, *weight, *port].map(u16::to_be_bytes).concat();
                (33, [numbers, written(target)].concat())
            }
            Record::Alias(target) => (CNAME, written(target)),
        }
    }
}

/// The name that stands here, and where it ends.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
}

fn written(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[u8::try_from(label.len()).expect("short")], label.as_bytes()].concat();
    name.split('.').flat_map(label).chain([0]).collect()
}

const UDP_BYTES_MAX: usize = 512;
const CNAME: u16 = 5;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
