//! A client of registries: the pulling half of the OCI distribution API, on top of a blocking HTTP client.
//!
//! A registry is a stranger: each answer is bounded in size and time, what it sends is checked against a digest or a size before
//! anyone uses it, and what it says is escaped and cut before anyone reads it. Nothing here writes into the store but
//! into the file of a download that can be resumed ([`Partial`](crate::image::store::partial::Partial)).
//!
//! From top to bottom: [`Client`] knows the API's addresses; `auth` and `challenge` how to log in; `follow` redirects and requests to wait;
//! `http` connections, TLS and proxies; `resolve` names. `download` brings one blob, however often the connection breaks, and `fetch`
//! an image.

mod address;
mod auth;
mod auth_files;
mod challenge;
mod client;
mod credentials;
mod document;
mod download;
mod error;
mod fetch;
mod follow;
mod http;
mod limits;
mod resolve;

pub use address::Address;
pub use client::{Access, BlobStream, Client};
pub use credentials::{Login, Secret};
pub use document::{Blob, Document, ImageDocument};
pub use download::{Progress, Silent, download};
pub use error::{At, RegistryError};
pub use fetch::{FetchError, Put, Shelf, fetch, find};
pub use limits::{Limits, MAX_BLOB, MAX_DOCUMENT, MAX_LAYERS, PARALLEL};
