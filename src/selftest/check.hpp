#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/backend/cuda_library.hpp"
#include "src/comm/communicator.hpp"
#include "src/selftest/files.hpp"
#include "src/selftest/report.hpp"

namespace trireme::selftest {

/// Place of a rank among the nodes.
struct Place {
  int rank = 0;
  std::string host;  ///< name of the node, as spelled by the scheduler
  int node = 0;      ///< number of the node: the first rank on it
  int local_rank = 0;
};

/// Ranks that communicate in a run, for the memory of the backend. All groups of one name are tested at once.
struct Group {
  std::string name;                 ///< "tensor", "data" ...
  Communicator* members = nullptr;  ///< null: this rank is not in a group of this name
  bool spans_nodes = false;
};

/// Named text that should be the same on all nodes: a version.
struct Property {
  std::string name;
  std::string text;
};

/// Inputs of all checks. Created on every rank.
struct Context {
  Backend& backend;     ///< under test
  Backend& reference;   ///< the CPU's, in fp64
  Communicator& world;  ///< all ranks, on host memory
  std::vector<Group> groups;
  Place place;
  std::string pci_address;           ///< address of this rank's GPU, "0000:17:00.0"; empty: none
  std::string nvml;                  ///< library that reports the GPU's state
  Ceilings ceilings;                 ///< largest rates of this rank's device
  std::vector<Property> properties;  ///< besides those of the machine, which the check reads itself
  bool allow_tf32 = false;           ///< fp32 products may round their inputs to TF32
  bool quick = false;                ///< small sizes: results within seconds, rates not meaningful
  double burn_seconds = 10;
  double min_share = 0.8;  ///< share of the median rate below which a rank is slow
  Files* files = nullptr;
  std::string folder;  ///< folder of the run, whose file system is checked; empty: none
};

/// Returns the node of every rank (Place::node). Collective.
std::vector<int> nodes_of_ranks(Context& context);

/// Share of the median cores, memory or clocks that a node must have: kernels reserve some memory, and a defective part
/// costs more.
inline constexpr double equipment_share = 0.95;

/// Ranks and devices needed by a check besides its own.
enum class Scope {
  rank,    ///< none: what it throws becomes a failed result
  ranks,   ///< all ranks make the same calls on host memory; never throws on only some ranks
  devices  ///< all ranks make the same calls on their devices; skipped after a device failure
};

/// One check of the self-test.
struct Check {
  std::string name;      ///< for progress messages, and for its failure if it throws
  std::string measures;  ///< measured quantity, for the log
  Scope scope = Scope::rank;
  /// Runs it on this rank. `rank` and `host` of the results are set by the caller.
  std::function<std::vector<Result>(Context&)> run;
};

/// Equipment and versions of the nodes: CPU model, cores, memory and kernel, and the context's properties. A node with
/// fewer cores or less memory than the others fails; other differences are shown.
Check machine_check();

/// State of each rank's GPU by NVML: driver, largest clocks, limit of power and ECC errors. Run it after the burn.
/// Uncorrectable ECC errors fail, as do clocks and power limits below those of the other GPUs. Skipped, with the
/// reason, if NVML is unavailable; no result on the CPU.
Check gpu_check();

/// Rates of this rank's device with all others equally loaded: a copy between tensors larger than the caches, and a
/// product of large matrices. Operations of a product of [n, n] matrices: 2 n^3. Bytes of a copy: those read and those
/// written. The rates are compared with the median of all ranks and with the ceilings of the device, if known: this
/// also detects a single slow GPU, or uniformly slow ones.
Check speed_check();

/// Repeats one product for `burn_seconds` and compares every result with the first one, element by element. Detects
/// silent corruption, and devices that throttle when hot. GPUs also report their clocks, temperature, power and
/// throttle reasons under load. A GPU fails if its temperature, hardware or a power brake throttles it in at least half
/// of the samples: single ones occur while clocks change.
Check burn_check();

/// Time in which 8 bytes pass between two ranks in both directions: neighbours in rank, and ranks half the job apart.
Check latency_check();

/// Every collective operation in every group of the grid: its result, which is exact, at a small and a large size, and
/// its bus bandwidth at the large one. All groups of a name communicate at the same time, as in training. Groups inside
/// one node and groups across nodes are compared among themselves.
Check collectives_check();

/// The file system of the run's folder. Every rank writes a file, syncs it to disk, reads it back and compares digests.
/// Then it reads the file of a rank on the next node: the folder must be shared. The files are always removed; those of
/// a killed self-test by one at least an hour later.
Check file_check();

using Checks = std::vector<Check>;

/// Returns all checks in execution order: first those of one rank, then those of several. `quick` omits kernels at
/// model sizes, and device rates.
Checks all_checks(bool quick);

/// Runs the checks one by one on all ranks simultaneously, and returns the same report on every rank. Collective over
/// `context.world`. A fault of one rank becomes a result. Communication errors are thrown: afterwards ranks cannot
/// agree on anything.
Report run(const Checks& checks, Context& context);

}  // namespace trireme::selftest
