//! The words of the OCI image specification that creel uses: digests, references, media types, platforms.

mod digest;
mod reference;

pub use digest::{Digest, DigestError, Hasher, HashingReader};
pub use reference::{Reference, ReferenceError};
