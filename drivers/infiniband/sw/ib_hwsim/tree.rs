// SPDX-License-Identifier: GPL-2.0

//! The ways that directories in configfs come and go: fabrics, and the nodes and cables in each.
//!
//! All that a directory knows is its name, and the fabric that it belongs to. A fabric's mutexes are taken in
//! the callbacks of configfs, under the subsystem's mutex or under the semaphore of the directory's files; RDMA
//! core and its clients take theirs under that of its changes, and none of them waits for configfs. Nothing of
//! configfs is called with one.

use core::marker::PhantomData;

use configfs_tree::{BinaryFile, Children, Defaults, Directory, File, Parent};
use debugfs_files::Dir;
use ib_fabric::topology::{CablePlan, Name, NodeKind, NodePlan};
use ib_fabric::Guid;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::change::Fabric;
use crate::directories::{CableDirectory, FabricDirectory, Hcas, Kind, NodeDirectory, Switches};
use crate::files;
use crate::LocalModule;

/// The node GUID of the first node: a locally administered one. 256 numbers on is the second one's.
const FIRST_GUID: u64 = 0x0a1b_0000_0000_0100;

/// Default GUIDs that have been given out.
static GUIDS: Atomic<u64> = Atomic::new(0);

/// The directory of the module: its directories are fabrics.
pub(crate) struct Fabrics {
    /// The module's directory in debugfs.
    files: Arc<Dir>,
}

impl Fabrics {
    /// None.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let files = Dir::new(c"ib_hwsim", None)?;
        Ok(Self { files })
    }
}

impl Parent for Fabrics {
    type Child = FabricDirectory;

    fn make(&self, name: &str) -> Result<FabricDirectory> {
        Fabric::new(valid(name)?, &self.files).map(FabricDirectory)
    }

    fn remove(&self, child: &FabricDirectory) {
        child.0.change().go_down();
    }
}

fn valid(name: &str) -> Result<Name> {
    Name::new(name).ok_or(EINVAL)
}

impl Directory for FabricDirectory {
    type Module = LocalModule;
    const FILES: &'static [File<Self>] = files::FABRIC;

    fn furnish(&self, defaults: &mut Defaults<'_>) -> Result {
        defaults.add(c"hcas", Nodes::<Hcas>(self.0.clone(), PhantomData))?;
        defaults.add(c"switches", Nodes::<Switches>(self.0.clone(), PhantomData))?;
        defaults.add(c"cables", Cables(self.0.clone()))
    }
}

impl Kind for Hcas {
    const KIND: NodeKind = NodeKind::Hca;
    const FILES: &'static [File<NodeDirectory<Self>>] = files::HCA;
    const BINARY_FILES: &'static [BinaryFile<NodeDirectory<Self>>] = files::HCA_BINARY;
}

impl Kind for Switches {
    const KIND: NodeKind = NodeKind::Switch;
    const FILES: &'static [File<NodeDirectory<Self>>] = files::SWITCH;
}

/// The directory of a fabric's nodes of a kind.
struct Nodes<K: Kind>(Arc<Fabric>, PhantomData<K>);

impl<K: Kind> Directory for Nodes<K> {
    type Module = LocalModule;
    const CHILDREN: Children<Self> = Children::MADE;
}

impl<K: Kind> Parent for Nodes<K> {
    type Child = NodeDirectory<K>;

    fn make(&self, name: &str) -> Result<NodeDirectory<K>> {
        let name = valid(name)?;
        let guid = Guid::new(FIRST_GUID + GUIDS.fetch_add(1, Relaxed) * 256);
        let plan = NodePlan::new(K::KIND, name, guid).ok_or(EINVAL)?;
        self.0.change().topology().add_node(plan)?;
        Ok(NodeDirectory::new(&self.0, name))
    }

    fn remove(&self, child: &NodeDirectory<K>) {
        self.0.change().remove_node(child.name);
    }
}

/// The directory of a fabric's cables.
struct Cables(Arc<Fabric>);

impl Directory for Cables {
    type Module = LocalModule;
    const CHILDREN: Children<Self> = Children::MADE;
}

impl Parent for Cables {
    type Child = CableDirectory;

    fn make(&self, name: &str) -> Result<CableDirectory> {
        let name = valid(name)?;
        self.0.change().topology().add_cable(CablePlan::new(name))?;
        Ok(CableDirectory {
            fabric: self.0.clone(),
            name,
        })
    }

    fn remove(&self, child: &CableDirectory) {
        self.0.change().remove_cable(child.name);
    }
}

impl Directory for CableDirectory {
    type Module = LocalModule;
    const FILES: &'static [File<Self>] = files::CABLE;
}
