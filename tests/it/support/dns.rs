//! A name server of a test's own, over UDP and TCP on one port of loopback. It answers what it is told, well or not.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

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
    /// To questions for addresses of IPv4, and to others.
    Split(Box<Reply>, Box<Reply>),
    /// These, after so long.
    Late(Duration, Vec<Record>),
    /// These, behind so many answers to other questions.
    Forged(usize, Vec<Record>),
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
                let Some(answer) = over_udp.answer(&question[..length], UDP_BYTES_MAX) else { continue };
                for _ in 0..answer.forged {
                    // The number is another.
                    let forged = [&[answer.bytes[0] ^ 1, answer.bytes[1]], &answer.bytes[2..]].concat();
                    udp.send_to(&forged, from).ok();
                }
                let socket = udp.try_clone().expect("a descriptor is free");
                thread::spawn(move || {
                    thread::sleep(answer.after);
                    socket.send_to(&answer.bytes, from).ok();
                });
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

    /// From now on there is no such name.
    pub fn forget(&self, name: &str) {
        self.known.replies.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
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
        Dns::config_of(&[self])
    }

    /// The same with several, in this order.
    pub fn config_of(servers: &[&Dns]) -> String {
        let servers: Vec<String> = servers.iter().map(|dns| format!("\"{}\"", dns.addr)).collect();
        format!("[dns]\nservers = [{}]\n", servers.join(", "))
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

/// What is sent.
struct Answer {
    bytes: Vec<u8>,
    after: Duration,
    forged: usize,
}

impl From<Vec<u8>> for Answer {
    fn from(bytes: Vec<u8>) -> Answer {
        Answer { bytes, after: Duration::ZERO, forged: 0 }
    }
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
            let length = u16::try_from(answer.bytes.len()).expect("it was cut to fit");
            if stream.write_all(&[&length.to_be_bytes(), &*answer.bytes].concat()).is_err() {
                return;
            }
        }
    }

    /// An answer; one that is longer than `max` is cut to nothing, so that the question comes again by TCP.
    fn answer(&self, question: &[u8], max: usize) -> Option<Answer> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let (name, end) = name(question, 12)?;
        let kind = u16::from_be_bytes([*question.get(end)?, *question.get(end + 1)?]);
        let asked = &question[12..end + 4];
        let reply = self.replies.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        let reply = match reply {
            Some(Reply::Split(v4, _)) if kind == A => Some(*v4),
            Some(Reply::Split(_, other)) => Some(*other),
            whole => whole,
        };
        let (mut after, mut forged) = (Duration::ZERO, 0);
        let (code, ttl, records) = match reply {
            None => (NXDOMAIN, 0, Vec::new()),
            Some(Reply::Failure) => (SERVFAIL, 0, Vec::new()),
            Some(Reply::Silence | Reply::Split(..)) => return None,
            Some(Reply::Nonsense) => return Some([&question[..2], &[0xff; 40]].concat().into()),
            Some(Reply::Records(ttl, records)) => (0, ttl, records),
            Some(Reply::Late(late, records)) => {
                after = late;
                (0, 1, records)
            }
            Some(Reply::Forged(count, records)) => {
                forged = count;
                (0, 1, records)
            }
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
        Some(Answer { bytes: [&question[..2], &head, asked, answers].concat(), after, forged })
    }
}

impl Record {
    fn data(&self) -> (u16, Vec<u8>) {
        match self {
            Record::A(address) => (A, address.octets().to_vec()),
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
const A: u16 = 1;
const CNAME: u16 = 5;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
