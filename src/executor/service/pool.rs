//! All pools of a daemon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Shared;
use super::config::PoolConfig;
use super::key::fits;
use super::shelf::{Counts, Shelf};
use super::slot::Slot;
use crate::executor::request::Request;
use crate::executor::run::Stop;

/// The pools, in the order of the configuration.
#[derive(Debug)]
pub struct Pools(Vec<Pool>);

#[derive(Debug)]
struct Pool {
    config: Arc<PoolConfig>,
    /// By tenant; without tenants one, from the beginning.
    shelves: Mutex<HashMap<Option<String>, Arc<Shelf>>>,
}

/// How a pool is; for each tenant of its own where the pool is for each.
#[derive(Debug, Clone)]
pub struct PoolStatus {
    pub image: String,
    pub seccomp: String,
    pub preload: Vec<String>,
    pub tenant: Option<String>,
    /// Slots that wait, and that are being made.
    pub ready: usize,
    pub starting: usize,
    pub counts: Counts,
    /// `None`: the pool has none by its configuration.
    pub zygote: Option<ZygoteStatus>,
    /// Why the last slot or zygote could not be made, or why the last zygote ended; none once slots can be made again.
    pub last_error: Option<String>,
}

/// How a pool's zygote is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZygoteStatus {
    /// Whether there is one.
    pub ready: bool,
    /// Of this one.
    pub forks: u64,
    pub age: Duration,
}

impl Pools {
    /// Begins to fill those that do not wait for a tenant.
    pub fn new(configs: Vec<PoolConfig>, shared: &Arc<Shared>) -> Pools {
        let pools = Pools(
            configs
                .into_iter()
                .map(|config| Pool { config: Arc::new(config), shelves: Mutex::default() })
                .collect(),
        );
        for pool in pools.0.iter().filter(|p| !p.config.per_tenant) {
            pool.shelf(None, shared);
        }
        pools
    }

    /// A slot for the request from the first pool that it fits, if one waits. The shelf is told when the delivery fails.
    pub async fn take(
        &self,
        request: &Request,
        tenant: Option<&str>,
        shared: &Arc<Shared>,
    ) -> Option<(Slot, Arc<Shelf>)> {
        let pool = self.0.iter().find(|p| fits(&p.config, request).is_ok())?;
        let tenant = tenant.filter(|_| pool.config.per_tenant).map(str::to_owned);
        let shelf = pool.shelf(tenant, shared);
        Some((shelf.take(shared).await?, shelf))
    }

    pub fn status(&self) -> Vec<PoolStatus> {
        self.0.iter().flat_map(Pool::status).collect()
    }

    /// Returns when the pool of this number, which is not one for each tenant, has a slot.
    ///
    /// # Errors
    /// One could not be made.
    pub async fn filled(&self, number: usize, shared: &Arc<Shared>) -> Result<(), Stop> {
        match self.0.get(number) {
            Some(pool) => pool.shelf(None, shared).filled().await,
            None => Ok(()),
        }
    }
}

impl Pool {
    /// The shelf of this tenant, made when there is none yet.
    fn shelf(&self, tenant: Option<String>, shared: &Arc<Shared>) -> Arc<Shelf> {
        let mut shelves = self.shelves();
        // A task is stopped with the service, or ends when its tenant is gone: then this is the last reference but the map's.
        shelves.retain(|tenant, shelf| tenant.is_none() || Arc::strong_count(shelf) > 1);
        let new = || {
            let shelf = Shelf::new(Arc::clone(&self.config), tenant.clone());
            tokio::spawn(Arc::clone(&shelf).keep(Arc::clone(shared)));
            shelf
        };
        Arc::clone(shelves.entry(tenant.clone()).or_insert_with(new))
    }

    fn status(&self) -> Vec<PoolStatus> {
        let of = |shelf: &Arc<Shelf>| {
            let status = shelf.status();
            let (forks, age) = status.zygote.unwrap_or_default();
            PoolStatus {
                image: self.config.image.clone(),
                seccomp: self.config.seccomp.name.clone(),
                preload: self.config.preload.clone(),
                tenant: shelf.tenant.clone(),
                ready: status.ready,
                starting: status.starting,
                counts: status.counts,
                zygote: self.config.zygote.then_some(ZygoteStatus {
                    ready: status.zygote.is_some(),
                    forks,
                    age,
                }),
                last_error: status.last_error.map(|stop| stop.error.message),
            }
        };
        self.shelves().values().map(of).collect()
    }

    fn shelves(&self) -> MutexGuard<'_, HashMap<Option<String>, Arc<Shelf>>> {
        // Nothing panics with it half changed.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
