// SPDX-License-Identifier: GPL-2.0

//! `/proc/sys/net/ipoib/<interface>/`: changes of [`Settings`].

use ipoib_netdev::device::Device;
use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::sysctl::{Tunable, Variable};
use kernel::prelude::*;
use kernel::str::CStr;

use crate::base::interface::Interface;
use crate::base::settings::{Effect, Settings};

impl Tunable for Interface {
    const DIRECTORY: &'static CStr = c"ipoib";
    const VARIABLES: &'static [Variable] = Settings::VARIABLES;

    fn get(dev: &Device<Self>, id: usize) -> u32 {
        let setting = dev.data().get_ref().settings.get(id);
        setting.map_or(0, |(value, _)| value.get())
    }

    fn set(dev: &Device<Self>, id: usize, value: u32, rtnl: &mut Rtnl) -> Result {
        let settings = &dev.data().get_ref().settings;
        let (setting, effect) = settings.get(id).ok_or(EINVAL)?;
        setting.set(value);
        match effect {
            Effect::Extensions => Self::extensions_changed(dev, rtnl),
            Effect::Budget => Self::budget_changed(dev, rtnl),
            Effect::Class => Self::class_changed(dev, rtnl),
            Effect::Connections => Self::connections_changed(dev),
            Effect::Immediate => {}
        }
        Ok(())
    }
}
