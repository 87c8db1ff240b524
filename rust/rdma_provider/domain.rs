// SPDX-License-Identifier: GPL-2.0

//! Protection domains: the memory regions that a queue pair can name (IB specification, section 10.2.3).

use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};

use crate::region::{Region, Right, Use};

/// A protection domain. Its keys mean nothing in another one.
#[pin_data]
pub(crate) struct Domain {
    #[pin]
    table: SpinLockIrq<Table>,
}

/// Regions by their places.
struct Table {
    regions: KVVec<Option<Arc<Region>>>,
    /// Places that nobody has taken; there is room for all.
    free: KVVec<u32>,
}

/// Memory regions of one domain: their places have to fit into a key.
const MOST: usize = 1 << 20;

impl Table {
    /// Gives a place back.
    fn release(&mut self, place: u32) {
        // There is room for it.
        let _ = self.free.push_within_capacity(place);
    }

    /// Moves all to a larger table without regions, and leaves the old one there.
    fn grow(&mut self, larger: &mut Table) {
        for (new, old) in larger.regions.iter_mut().zip(self.regions.iter_mut()) {
            core::mem::swap(new, old);
        }
        core::mem::swap(self, larger);
        let old = larger.regions.len().max(1);
        for place in (old..self.regions.len()).rev() {
            self.release(place as u32);
        }
        for place in &larger.free {
            self.release(*place);
        }
    }
}

impl Domain {
    /// A domain without regions.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let table = Table {
            regions: KVVec::new(),
            free: KVVec::new(),
        };
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock_irq!(table, "rdma_provider::Domain"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a region, which is made for a place in the table. Place 0 is left free, as no key may be that of all
    /// memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or that of `make`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Result<Arc<Region>>) -> Result<Arc<Region>> {
        let place = self.reserve()?;
        let region = make(place);
        let mut table = self.table.lock();
        match &region {
            Ok(region) => table.regions[place as usize] = Some(region.clone()),
            Err(_) => table.release(place),
        }
        region
    }

    /// Takes a free place.
    fn reserve(&self) -> Result<u32> {
        let mut spare = Table {
            regions: KVVec::new(),
            free: KVVec::new(),
        };
        loop {
            let len = {
                let mut table = self.table.lock();
                if spare.regions.len() > table.regions.len() {
                    table.grow(&mut spare);
                }
                if let Some(place) = table.free.pop() {
                    return Ok(place);
                }
                table.regions.len()
            };
            if len >= MOST {
                return Err(ENOMEM);
            }
            let more = (len * 2).max(64);
            spare = Table {
                regions: KVVec::with_capacity(more, GFP_KERNEL)?,
                free: KVVec::with_capacity(more, GFP_KERNEL)?,
            };
            for _ in 0..more {
                spare.regions.push(None, GFP_KERNEL)?;
            }
        }
    }

    /// Removes a region, and closes it.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn remove(&self, region: &Arc<Region>) {
        let gone = {
            let mut table = self.table.lock();
            let slot = table.regions.get_mut(region.place() as usize);
            let gone = slot.and_then(Option::take);
            if gone.is_some() {
                table.release(region.place());
            }
            gone
        };
        drop(gone);
        region.end();
    }

    /// The region that a key may be for.
    pub(crate) fn find(&self, key: u32) -> Option<Arc<Region>> {
        self.table.lock().regions.get((key >> 8) as usize)?.clone()
    }

    /// Begins the use of a region.
    pub(crate) fn enter(&self, key: u32, right: Right) -> Option<Use> {
        self.find(key)?.enter_with(key, right)
    }

    /// Returns true if `key` gives `right` to `len` bytes at `address`.
    pub(crate) fn allows(&self, key: u32, address: u64, len: usize, right: Right) -> bool {
        let used = self.enter(key, right);
        used.is_some_and(|used| used.has(address, len))
    }

    /// Closes the region that has this key. False if there is none.
    pub(crate) fn invalidate(&self, key: u32) -> bool {
        self.find(key).is_some_and(|region| region.invalidate(key))
    }
}
