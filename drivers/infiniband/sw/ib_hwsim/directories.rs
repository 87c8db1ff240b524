// SPDX-License-Identifier: GPL-2.0

//! Directories of a fabric, of its nodes and of its cables, with their state.

use core::marker::PhantomData;

use configfs_tree::{BinaryFile, Directory, File};
use ib_fabric::topology::{Name, NodeKind};
use kernel::sync::Arc;

use crate::change::Fabric;
use crate::LocalModule;

/// A fabric's directory.
pub(crate) struct FabricDirectory(pub(crate) Arc<Fabric>);

/// A kind of nodes, which have a directory.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    const KIND: NodeKind;
    const FILES: &'static [File<NodeDirectory<Self>>];
    const BINARY_FILES: &'static [BinaryFile<NodeDirectory<Self>>] = &[];
}

/// Adapters.
pub(crate) struct Hcas;

/// Switches.
pub(crate) struct Switches;

/// A node's directory.
pub(crate) struct NodeDirectory<K: Kind> {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) name: Name,
    _kind: PhantomData<K>,
}

impl<K: Kind> NodeDirectory<K> {
    pub(crate) fn new(fabric: &Arc<Fabric>, name: Name) -> Self {
        Self {
            fabric: fabric.clone(),
            name,
            _kind: PhantomData,
        }
    }
}

impl<K: Kind> Directory for NodeDirectory<K> {
    type Module = LocalModule;
    const FILES: &'static [File<Self>] = K::FILES;
    const BINARY_FILES: &'static [BinaryFile<Self>] = K::BINARY_FILES;
}

/// A cable's directory.
pub(crate) struct CableDirectory {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) name: Name,
}
