// SPDX-License-Identifier: GPL-2.0

//! `make help`.

/// Prints what there is to make.
pub fn print() {
    println!(
        "\
ipoib_rs: IP over InfiniBand for Linux, in Rust. Everything below runs as root.

  make demo      two virtual machines with Debian's kernel, ib0 on both: they talk, and a table shows it
  make test      unit tests, fuzzing, lint, and each scenario once, on the debug kernel of the uml lane or, some of
                 them, on its base kernel; the last line is \"N passed, N failed\"
  make kunit     the KUnit suites alone, in a virtual machine with soft-RoCE
                 (LANE=uml, KERNEL=debug: on another kernel)
  make bench     measure against the kernel's own C driver
  make report    build/report.html: all that was measured, as plots and tables
  make shell     an interactive host with ib0 up and a neighbour to talk to
  make module    the module for the running kernel (KDIR=dir: for another; needs no root)
  make deb       the Debian packages, checked by lintian
  make kernel    the lab's kernels
  make lint      formatting, lints, licences
  make mutants   change the protocol rules and the rings in each small way there is, and count the changes that
                 the tests notice; takes a day  (SHARD=0/14: every 14th change, from the first on; T=driver: of the
                 driver's hot path instead; T=ud/ring.rs: only changes there whose names contain this)
  make fuzz      give the fuzz targets of tests/fuzz inputs that reach more and more of their code
                 (FOR=10m: for that time; T=name: one of them; INPUT=file: that input again)
  make sim       play histories in simulated time: hosts on a fabric full of faults, drawn from seeds
                 (SEEDS=0..100: these; FOR=10m: for that time; SEED=7: one, with a trace; INPUT=file: a plan;
                 COVER=1: and the lines of the driver that they reach; MUTANT=name: with a fault in the driver;
                 KERNEL=sim-debug: with KASAN)
  make configs   compile the modules, out of tree and in a kernel tree, with HZ=300, for arm64 and with KCSAN,
                 and run the KUnit suites with the kernel's own tool
                 (T=name: one of them: hz300, arm64, kcsan, kunit)
  make overlay   link the driver into a kernel tree  (KDIR=dir)
  make clean     remove what was built from this checkout

  T=name         with make test and bench: only scenarios or cases whose name contains it,
                 and no unit tests and no lint
  LANE=uml|qemu|all   with make test: each scenario of the lane on each kernel; qemu takes hours on two cores
  LANE=uml|qemu  with make bench and kernel: one lane only
  KERNEL=base|debug|lockdep|kcsan|stock   with make test and kernel: this kernel, and all of its scenarios; lockdep (uml)
                 finds deadlocks, kcsan (qemu) data races, both built only if asked for, and stock is Debian's own (qemu)
  FRESH=1        with make test: run all scenarios, also those that passed before with the same inputs
  HOLLOW=1       with make test T=name: run each scenario once more for each program that it starts in the background,
                 with `true` in place of the program: it has to fail
  PAGE=ud|disorder|rc|fabric|ib|papers, PAIRS=n   with make bench: one page only; measurements of each case.
                 papers is measured only if asked for, and with LANE=qemu only on the qemu lane

  IPOIB_RS_CACHE   where root, kernels and builds live (default: ~/.cache/ipoib_rs)
  IPOIB_RS_MIRROR  Debian mirror for the root"
    );
}
