//! How messages of Envoy's services are written and read: as prost does, in buffers of their size.

use std::marker::PhantomData;

use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Messages `In`, answers `Out`.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnvoyCodec<In, Out>(PhantomData<(In, Out)>);

impl<In, Out> EnvoyCodec<In, Out> {
    pub(super) fn new() -> EnvoyCodec<In, Out> {
        EnvoyCodec(PhantomData)
    }
}

impl<In, Out> Codec for EnvoyCodec<In, Out>
where
    In: prost::Message + Default + 'static,
    Out: prost::Message + 'static,
{
    type Encode = Out;
    type Decode = In;
    type Encoder = ProstEncoder<Out>;
    type Decoder = ProstDecoder<In>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(ANSWER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(ANSWER_BYTES, YIELD_BYTES))
    }
}

/// A usual answer fits: tonic's own buffer of 8 KiB costs an allocation of that size for each.
const ANSWER_BYTES: usize = 512;
/// No answer is cut: each is written whole.
const YIELD_BYTES: usize = 32 * 1024;
