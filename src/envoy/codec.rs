//! How messages of the rate limit service are written and read: as prost does, in buffers of their size.

use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

use super::messages::{RateLimitRequest, RateLimitResponse};

/// Requests in, answers out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RlsCodec;

impl Codec for RlsCodec {
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

/// A usual answer fits: tonic's own buffer of 8 KiB costs an allocation of that size for each.
const ANSWER_BYTES: usize = 512;
/// No answer is cut: it has one message.
const YIELD_BYTES: usize = 32 * 1024;
