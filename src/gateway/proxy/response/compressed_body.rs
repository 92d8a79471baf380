//! A body that is compressed as it comes. It streams: what has come from its source goes to the client as soon as the source
//! has no more at once, and nothing is read from the source while the client does not take what is there.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use compression_codecs::brotli::params::EncoderParams;
use compression_codecs::core::Level;
use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::zstd::params::CParameter;
use compression_codecs::{BrotliEncoder, EncodeV2, GzipEncoder, ZstdEncoder};
use http_body::Frame;

use crate::proxy::request::request_body::Error;
use crate::proxy::response::response_body::BodySource;
use policy::response::compress::Coding;

/// A source of bytes, and what becomes of them.
#[derive(derive_more::Debug)]
#[debug("CompressedBody({source:?})")]
pub struct CompressedBody {
    source: BodySource,
    coding: (Coding, u32),
    /// Made with the first byte, because the answer to a HEAD needs none.
    encoder: Option<Encoder>,
    /// Bytes of the source that the encoder has not taken.
    input: Bytes,
    stage: Stage,
    /// Whether the encoder may hold bytes that have not come out.
    holds: bool,
    trailers: Option<Frame<Bytes>>,
    failure: Option<SourceFailure>,
    /// One of the slots of the worker; taken as long as the body lives.
    _slot: Rc<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    /// The source pauses: what the encoder holds comes out.
    Flushing,
    /// The source has ended: what the encoder holds is the last.
    Finishing,
    Ended,
}

/// The source's failure, which is passed on after what came before it.
struct SourceFailure {
    error: Error,
    /// Whether hyper has had a turn to send that. It gets one, because it drops what it has not sent when a body fails.
    is_due: bool,
}

impl CompressedBody {
    /// Compresses what comes from `source` with this coding and level.
    pub fn new(source: BodySource, coding: (Coding, u32), slot: Rc<()>) -> CompressedBody {
        CompressedBody {
            source,
            coding,
            encoder: None,
            input: Bytes::new(),
            stage: Stage::Reading,
            holds: false,
            trailers: None,
            failure: None,
            _slot: slot,
        }
    }

    pub fn is_end_stream(&self) -> bool {
        self.stage == Stage::Ended && self.trailers.is_none()
    }

    /// The next piece, of `OUTPUT_BYTES` at most.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut taken = 0;
        loop {
            let is_whole = match self.stage {
                Stage::Reading if self.input.is_empty() => match self.poll_source(cx) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Poll::Pending => return Poll::Pending,
                },
                Stage::Reading => {
                    let before = self.input.len();
                    self.encode().map_err(Error::Compress)?;
                    taken += before - self.input.len();
                    false
                }
                Stage::Flushing => self.flush().map_err(Error::Compress)?,
                Stage::Finishing => self.finish().map_err(Error::Compress)?,
                Stage::Ended => return Poll::Ready(self.trailers.take().map(Ok)),
            };
            if let Some(piece) = self.encoder.as_mut().and_then(|encoder| encoder.piece(is_whole)) {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if taken >= INPUT_BYTES_MAX {
                // Other requests have their turn, because a text that shrinks to almost nothing fills no piece for
                // long.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Asks the source for more, and goes to the next stage if there is none.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.failure {
            Some(failure) if !failure.is_due => {
                failure.is_due = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(_) => return Poll::Ready(self.failure.take().map_or(Ok(()), |failure| Err(failure.error))),
            None => {}
        }
        match self.source.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.input = data,
                Err(trailers) => (self.trailers, self.stage) = (Some(trailers), Stage::Finishing),
            },
            Poll::Ready(Some(Err(error))) => {
                self.failure = Some(SourceFailure { error, is_due: false });
                self.stage = if self.holds { Stage::Flushing } else { Stage::Reading };
            }
            Poll::Ready(None) => self.stage = Stage::Finishing,
            Poll::Pending if self.holds => self.stage = Stage::Flushing,
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    fn encode(&mut self) -> io::Result<()> {
        let encoder = self.encoder.get_or_insert_with(|| Encoder::new(self.coding));
        self.holds = true;
        let length = self.input.len().min(INPUT_BYTES_ONCE);
        let mut input = PartialBuffer::new(&self.input[..length]);
        encoder.run(|codec, output| codec.encode(&mut input, output))?;
        let read = input.written_len();
        self.input.advance(read);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<bool> {
        let encoder = self.encoder.get_or_insert_with(|| Encoder::new(self.coding));
        let is_whole = encoder.run(|codec, output| codec.flush(output))?;
        if is_whole {
            (self.stage, self.holds) = (Stage::Reading, false);
        }
        Ok(is_whole)
    }

    fn finish(&mut self) -> io::Result<bool> {
        let encoder = self.encoder.get_or_insert_with(|| Encoder::new(self.coding));
        let is_whole = encoder.run(|codec, output| codec.finish(output))?;
        if is_whole {
            self.stage = Stage::Ended;
        }
        Ok(is_whole)
    }
}

/// A codec, and what has come out of it.
struct Encoder {
    codec: Box<dyn EncodeV2>,
    output: Box<[u8]>,
    filled: usize,
}

impl Encoder {
    fn new((coding, level): (Coding, u32)) -> Encoder {
        let level = Level::Precise(i32::try_from(level).unwrap_or_default());
        let codec: Box<dyn EncodeV2> = match coding {
            Coding::Zstd => {
                let tables = [CParameter::hash_log(TABLE_LOG), CParameter::chain_log(TABLE_LOG)];
                let bounds = [CParameter::window_log(WINDOW_LOG), tables[0], tables[1]];
                Box::new(ZstdEncoder::new_with_params(CParameter::quality(level), &bounds))
            }
            Coding::Brotli => {
                let parameters = EncoderParams::default().quality(level).window_size(WINDOW_LOG as i32);
                Box::new(BrotliEncoder::new(parameters))
            }
            Coding::Gzip => Box::new(GzipEncoder::new(level.into())),
        };
        Encoder { codec, output: vec![0; OUTPUT_BYTES].into(), filled: 0 }
    }

    /// Lets the codec write behind what is there already.
    fn run<T>(
        &mut self,
        step: impl FnOnce(&mut dyn EncodeV2, &mut WriteBuffer<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut output = WriteBuffer::new_initialized(&mut self.output[self.filled..]);
        let done = step(&mut *self.codec, &mut output)?;
        self.filled += output.written_len();
        Ok(done)
    }

    /// What has come out, if there is a piece of it or, with `is_whole`, anything.
    fn piece(&mut self, is_whole: bool) -> Option<Bytes> {
        if self.filled == 0 || (!is_whole && self.filled < self.output.len()) {
            return None;
        }
        let piece = Bytes::copy_from_slice(&self.output[..self.filled]);
        self.filled = 0;
        Some(piece)
    }
}

/// The window of zstd and brotli: 256 KiB. Not their own default of megabytes, because that would be the memory of each
/// answer under way, and makes answers of the usual size no smaller.
const WINDOW_LOG: u32 = 18;
/// Entries of zstd's tables, which high levels would make many times as large.
const TABLE_LOG: u32 = 17;
/// Longest piece that is sent at once.
const OUTPUT_BYTES: usize = 16 * 1024;
/// Bytes that a codec is given at once.
const INPUT_BYTES_ONCE: usize = 16 * 1024;
/// Bytes that are compressed before others have their turn: less than a millisecond's work.
const INPUT_BYTES_MAX: usize = 64 * 1024;
