//! What the program in a sandbox is: nobody's, or a step that builds an image.

use serde::{Deserialize, Serialize};

use super::spec::INSIDE_ID;
use crate::sys::privileges as caps;

/// Decides the identity, the privileges, the network and the places for writing. Everything else is the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A program that nobody trusts: uid 10001, no capability, no network, writes only to its own places.
    Payload,
    /// A step of an image build: 0 inside, which is a reserved id on the host, with the capabilities that package managers need
    /// over files of the ids that the sandbox has. It writes everywhere in the root, which is an overlay of its own.
    Builder {
        /// The host's network, for registries; else none.
        network: bool,
    },
    /// A zygote: imports modules of the image and forks. It has no capability and no network and may write only to its own places, but neither
    /// landlock nor a system-call filter, which its forks would inherit before they have mounted their roots; and it is in no pid namespace of its
    /// own, with which they would all end.
    Zygote {
        /// Its uid and gid inside.
        id: u32,
    },
}

/// What installing packages takes: owners and modes of files, other users for parts of the work, and ending those.
const BUILD: u64 = caps::CHOWN
    | caps::DAC_OVERRIDE
    | caps::DAC_READ_SEARCH
    | caps::FOWNER
    | caps::FSETID
    | caps::KILL
    | caps::SETGID
    | caps::SETUID;

impl Role {
    /// Uid and gid of the program inside.
    pub fn inside(self) -> u32 {
        match self {
            Role::Payload => INSIDE_ID,
            Role::Builder { .. } => 0,
            Role::Zygote { id } => id,
        }
    }

    /// Capabilities of the program, in the sandbox's own user namespace; the bounding set holds no other.
    pub fn capabilities(self) -> u64 {
        match self {
            Role::Payload | Role::Zygote { .. } => 0,
            Role::Builder { .. } => BUILD,
        }
    }

    /// Capabilities that init keeps: it must be able to end everybody.
    pub fn init_capabilities(self) -> u64 {
        self.capabilities() & caps::KILL
    }

    /// Whether the sandbox has a network namespace of its own, with nothing but a loopback device.
    pub fn own_network(self) -> bool {
        !matches!(self, Role::Builder { network: true })
    }

    /// Where landlock lets the program write.
    pub fn writable(self) -> &'static [&'static str] {
        match self {
            Role::Payload => &["/work", "/outputs", "/tmp", "/run", "/dev/shm"],
            Role::Builder { .. } => &["/"],
            Role::Zygote { .. } => &[],
        }
    }
}
