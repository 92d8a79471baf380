//! Decodes a body that passes in a coding, for whoever reads along. The body itself goes on as it is.

use std::io;
use std::rc::Rc;

use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
use compression_codecs::zstd::params::DParameter;
use compression_codecs::{BrotliDecoder, DecodeV2, GzipDecoder, ZstdDecoder};

use policy::response::compress::Coding;

/// Decodes one body, piece by piece.
#[derive(derive_more::Debug)]
#[debug("BodyDecoder")]
pub struct BodyDecoder {
    codec: Box<dyn DecodeV2>,
    /// Another member may follow (RFC 1952 section 2.2).
    is_behind_member: bool,
    /// What has come ends within a member, so that more must follow.
    is_within: bool,
    _slot: Rc<()>,
}

impl BodyDecoder {
    /// A decoder of this coding, with one of the worker's slots for codecs; `None` if none is free.
    pub fn new(coding: Coding, slots: &Rc<()>) -> Option<BodyDecoder> {
        let slot = codec_slot(slots)?;
        let codec: Box<dyn DecodeV2> = match coding {
            Coding::Zstd => {
                Box::new(ZstdDecoder::new_with_params(&[DParameter::window_log_max(WINDOW_LOG_MAX)]))
            }
            Coding::Brotli => Box::new(BrotliDecoder::new()),
            Coding::Gzip => Box::new(GzipDecoder::new()),
        };
        Some(BodyDecoder { codec, is_behind_member: false, is_within: false, _slot: slot })
    }

    /// Decodes the next piece, and hands on what it says.
    ///
    /// # Errors
    /// If it is not of the coding, or says more than `DECODED_BYTES_MAX`. Nothing can be decoded after that.
    pub fn push(&mut self, piece: &[u8], mut read: impl FnMut(&[u8])) -> io::Result<()> {
        let mut input = PartialBuffer::new(piece);
        let mut buffer = [0; BUFFER_BYTES];
        let mut decoded = 0;
        // What fills the buffer may go on, although all of the piece is taken.
        let mut is_full = false;
        while is_full || !input.unwritten().is_empty() {
            if std::mem::take(&mut self.is_behind_member) {
                self.codec.reinit()?;
            }
            let mut output = WriteBuffer::new_initialized(&mut buffer);
            self.is_behind_member = self.codec.decode(&mut input, &mut output)?;
            self.is_within = !self.is_behind_member;
            let length = output.written_len();
            read(&buffer[..length]);
            decoded += length;
            if decoded > DECODED_BYTES_MAX {
                return Err(io::Error::other("a piece is too long when it is decoded"));
            }
            is_full = length == BUFFER_BYTES && !self.is_behind_member;
        }
        Ok(())
    }

    /// Whether a body that ends here has been cut.
    pub fn is_within(&self) -> bool {
        self.is_within
    }
}

/// One of a worker's slots for codecs; `None` if none is free.
pub fn codec_slot(slots: &Rc<()>) -> Option<Rc<()>> {
    // The bound itself counts as free, because the services have one themselves.
    (Rc::strong_count(slots) <= COMPRESSIONS_MAX).then(|| Rc::clone(slots))
}

/// Bodies that one worker compresses at a time; answers beyond go out as they are. Each has tables of
/// one to two megabytes, of brotli at its highest level three and a half.
const COMPRESSIONS_MAX: usize = 128;
/// The window of zstd: 8 MiB, which every decoder has (RFC 8878 section 3.1.1.1.2). That of brotli is at most 16 MiB.
const WINDOW_LOG_MAX: u32 = 23;
const BUFFER_BYTES: usize = 8 * 1024;
/// What one piece may say: a few milliseconds' work.
const DECODED_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use compression_codecs::core::Level;
    use compression_codecs::{BrotliEncoder, EncodeV2, GzipEncoder, ZstdEncoder};

    use super::*;

    fn encoded(mut codec: impl EncodeV2, text: &[u8]) -> Vec<u8> {
        let mut output = vec![0; text.len() + 1_024];
        let mut buffer = WriteBuffer::new_initialized(&mut output);
        let mut input = PartialBuffer::new(text);
        while !input.unwritten().is_empty() {
            codec.encode(&mut input, &mut buffer).expect("memory takes it");
        }
        while !codec.finish(&mut buffer).expect("memory takes it") {}
        let length = buffer.written_len();
        output.truncate(length);
        output
    }

    fn each(text: &[u8]) -> [(Coding, Vec<u8>); 3] {
        let level = Level::Default;
        [
            (Coding::Gzip, encoded(GzipEncoder::new(level.into()), text)),
            (Coding::Zstd, encoded(ZstdEncoder::new(3), text)),
            (Coding::Brotli, encoded(BrotliEncoder::new(Default::default()), text)),
        ]
    }

    fn decoded(coding: Coding, pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut decoder = BodyDecoder::new(coding, &Rc::default()).expect("a slot");
        let mut text = Vec::new();
        for piece in pieces {
            decoder.push(piece, |decoded| text.extend_from_slice(decoded))?;
        }
        Ok(text)
    }

    #[test]
    fn a_body_in_any_pieces_says_what_it_did_before() {
        let text: Vec<u8> =
            (0..40_000_u32).flat_map(|number| (number % 977).to_string().into_bytes()).collect();
        for (coding, encoded) in each(&text) {
            for length in [1, 7, 4_096, encoded.len()] {
                let pieces: Vec<&[u8]> = encoded.chunks(length).collect();
                assert_eq!(decoded(coding, &pieces).expect("it is whole"), text, "{coding:?} by {length}");
            }
        }
        for (coding, encoded) in each(b"one ").into_iter().take(2) {
            let two = [&encoded[..], &encoded[..]].concat();
            assert_eq!(decoded(coding, &[&two]).expect("two members"), b"one one ", "{coding:?}");
        }
    }

    #[test]
    fn a_body_is_cut_anywhere_but_at_its_end() {
        for (coding, encoded) in each(b"[1,2,3]") {
            let mut decoder = BodyDecoder::new(coding, &Rc::default()).expect("a slot");
            assert!(!decoder.is_within(), "nothing has come of a {coding:?} body");
            for (at, byte) in encoded.iter().enumerate() {
                decoder.push(&[*byte], |_| ()).expect("it is of the coding");
                assert_eq!(decoder.is_within(), at + 1 < encoded.len(), "{coding:?} {at}");
            }
        }
    }

    #[test]
    fn a_body_that_is_too_long_or_of_no_coding_ends_in_an_error() {
        for (coding, encoded) in each(&vec![b' '; 2 * DECODED_BYTES_MAX]) {
            assert!(decoded(coding, &[&encoded]).is_err(), "{coding:?}");
            assert!(
                decoded(coding, &[b"{\"usage\":7, and more that is not compressed}"]).is_err(),
                "{coding:?}"
            );
        }
        let slots = Rc::default();
        let taken: Vec<_> = (0..COMPRESSIONS_MAX).map(|_| BodyDecoder::new(Coding::Gzip, &slots)).collect();
        assert!(taken.iter().all(Option::is_some) && BodyDecoder::new(Coding::Gzip, &slots).is_none());
    }
}
