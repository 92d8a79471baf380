//! The line between a process and its successor: messages with their length before them, and descriptors. It is a pair
//! of sockets that nobody else can reach; the successor finds its end as standard input.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use base::clock;

/// One end of the line. Each read and write ends by the deadline.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    deadline: Instant,
}

impl Channel {
    /// An end whose other end has until then.
    pub(super) fn new(stream: UnixStream, within: Duration) -> Channel {
        Channel { stream, deadline: clock::instant() + within }
    }

    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        self.write_all(&length.to_le_bytes())?;
        self.write_all(&text)
    }

    pub(super) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<M> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let mut text = vec![0; length as usize];
        self.read_exact(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Sends descriptors, which stay open here too.
    pub(super) fn send_descriptors(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.arm()?;
        for some in descriptors.chunks(AT_ONCE) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(some)) {
                return Err(io::Error::other("the message has no room for descriptors"));
            }
            rustix::net::sendmsg(&self.stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// So many descriptors that were sent at once.
    pub(super) fn receive_descriptors(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            self.arm()?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received =
                rustix::net::recvmsg(&self.stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
            let before = descriptors.len();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = message {
                    descriptors.extend(some);
                }
            }
            // An error, because the kernel leaves descriptors out where this process may have no more.
            if received.bytes == 0 || descriptors.len() == before {
                return Err(io::Error::other(
                    "descriptors are missing, because the process has reached its limit of open files: raise \
                     LimitNOFILE or ulimit -n",
                ));
            }
        }
        Ok(descriptors)
    }

    /// Gives the next call what is left of the time.
    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(clock::instant());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.read(buffer)
    }
}

impl Write for Channel {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.arm()?;
        // A write that finds nobody fails; Rust's programs ignore the signal it would be otherwise.
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Descriptors in one message; the kernel takes 253.
const AT_ONCE: usize = 64;
/// A message names sockets; a thousand of them are some 100 KiB.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().expect("there are descriptors");
        let channel = |stream| Channel::new(stream, Duration::from_secs(10));
        (channel(one), channel(other))
    }

    #[test]
    fn messages_and_more_descriptors_than_fit_one_arrive_in_order() {
        let (mut here, mut there) = pair();
        let files: Vec<_> =
            (0..150).map(|_| std::fs::File::open("/dev/null").expect("it is there")).collect();
        let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        here.send(&"before").expect("it is taken");
        here.send_descriptors(&descriptors).expect("they are taken");
        here.send(&"behind").expect("it is taken");
        assert_eq!(there.receive::<String>().expect("it came"), "before");
        assert_eq!(there.receive_descriptors(150).expect("they came").len(), 150);
        assert_eq!(there.receive::<String>().expect("it came"), "behind");
    }

    #[test]
    fn nobody_waits_longer_than_the_deadline_or_for_who_has_gone() {
        let (one, _other) = UnixStream::pair().expect("there are descriptors");
        assert!(Channel::new(one, Duration::ZERO).receive::<String>().is_err());
        let (mut here, there) = pair();
        drop(there);
        assert!(here.receive::<String>().is_err());
    }

    #[test]
    fn a_length_beyond_reason_is_refused_before_memory_is_taken() {
        let (mut here, mut there) = pair();
        here.write_all(&u32::MAX.to_le_bytes()).expect("it is taken");
        let error = there.receive::<String>().expect_err("it is too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
