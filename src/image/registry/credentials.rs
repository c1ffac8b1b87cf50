//! Who pulls: a user and a password from the caller, the environment or a file that docker or podman wrote.

use std::fmt;

use super::address::Address;
use super::auth_files;
use super::error::RegistryError;

/// The user's name in the environment.
pub const USER_ENV: &str = "CREEL_REGISTRY_USER";
/// The password in the environment.
pub const PASSWORD_ENV: &str = "CREEL_REGISTRY_PASSWORD";
/// The longest user name or password, in bytes.
const MAX: usize = 16 << 10;

/// A text that no message, log or `{:?}` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A user and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: Secret,
}

impl Login {
    /// Checks that both can be sent.
    ///
    /// # Errors
    /// [`RegistryError::Credentials`]: empty user, a colon or a control character in it, or either is longer than 16 KiB.
    pub fn new(user: impl Into<String>, password: Secret) -> Result<Login, RegistryError> {
        let user = user.into();
        let refused = |reason: &str| Err(RegistryError::Credentials { reason: reason.to_owned() });
        if user.is_empty() {
            return refused("the user is empty");
        }
        if user.contains(':') || user.contains(char::is_control) {
            return refused("a user has no colon and no control character (RFC 7617)");
        }
        if user.len() > MAX || password.reveal().len() > MAX {
            return refused("longer than 16 KiB");
        }
        Ok(Login { user, password })
    }

    /// The login for a registry when the caller gave none: of the environment, or else of the first file that has one.
    /// `None`: anonymous. The notes say what was found and can't be used.
    ///
    /// # Errors
    /// [`RegistryError::Credentials`]: half of it is in the environment, or a file is broken.
    pub fn find(address: &Address) -> Result<(Option<Login>, Vec<String>), RegistryError> {
        let variable = |name: &str| match std::env::var(name) {
            Ok(value) if !value.is_empty() => Ok(Some(value)),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
            Err(_) => Err(RegistryError::Credentials { reason: format!("{name} is not UTF-8") }),
        };
        match (variable(USER_ENV)?, variable(PASSWORD_ENV)?) {
            (Some(user), Some(password)) => Ok((Some(Login::new(user, Secret::new(password))?), Vec::new())),
            (Some(_), None) => Err(RegistryError::Credentials {
                reason: format!("{USER_ENV} is set, {PASSWORD_ENV} is not"),
            }),
            (None, _) => auth_files::find(address),
        }
    }

    /// The header's value: `Basic …`.
    pub(super) fn header(&self) -> Secret {
        use base64::Engine as _;
        let pair = format!("{}:{}", self.user, self.password.reveal());
        Secret(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let login = Login::new("anna", Secret::new("hunter2")).unwrap();
        assert!(!format!("{login:?}").contains("hunter2"));
        assert_eq!(login.header().reveal(), "Basic YW5uYTpodW50ZXIy");
        let login = Login::new("用户", Secret::new("密码:x")).unwrap();
        assert_eq!(login.header().reveal(), "Basic 55So5oi3OuWvhueggTp4");
    }

    #[test]
    fn users_that_cannot_be_sent() {
        for bad in ["", "a:b", "a\nb", &"a".repeat(MAX + 1)] {
            let error = Login::new(bad, Secret::new("hunter2")).unwrap_err();
            assert_eq!(error.code(), "image.registry_credentials", "{bad:?}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
