//! The words of the OCI image specification that creel uses: digests, references, media types, platforms.

mod digest;
mod media;
mod platform;
mod reference;

pub use digest::{Digest, DigestError, Hasher, HashingReader};
pub use media::{CONFIG, INDEX, Kind, LAYER, LayerMedia, MANIFEST, kind, layer_media, oci_type};
pub use platform::{MAX_INDEX_DEPTH, NoPlatform, Target, choose_platform, platforms};
pub use reference::{Reference, ReferenceError};
