//! How checks are read and answers written: as prost does, in buffers of their size.

use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

use super::messages::{RateLimitRequest, RateLimitResponse};

#[derive(Clone, Copy, Debug)]
pub(super) struct CheckCodec;

impl Codec for CheckCodec {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = ProstDecoder<RateLimitRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(ANSWER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(ANSWER_BYTES, YIELD_BYTES))
    }
}

/// A usual answer fits. The buffer is small, because tonic's own of 8 KiB costs an allocation of that size for each.
const ANSWER_BYTES: usize = 512;
/// More than any answer has, so that each is written whole.
const YIELD_BYTES: usize = 32 * 1024;
