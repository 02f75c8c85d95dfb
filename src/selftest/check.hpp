#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/backend/cuda_library.hpp"
#include "src/comm/communicator.hpp"
#include "src/selftest/files.hpp"
#include "src/selftest/result.hpp"

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

/// Share of the median cores, memory or clocks that a node must have: kernels reserve some memory, and a defective part
/// costs more.
inline constexpr double equipment_share = 0.95;

/// Ranks and devices needed by a check besides its own.
enum class Scope {
  rank,    ///< none: what it throws becomes a failed result
  ranks,   ///< all ranks make the same calls on host memory; throws nothing on one rank alone
  devices  ///< all ranks make the same calls on their devices; skipped after a device failure
};

/// One check of the self-test.
class Check {
 public:
  virtual ~Check() = default;
  /// Name for progress messages, and for its failure if it throws.
  virtual std::string name() const = 0;
  /// Measured quantity, for the log.
  virtual std::string measures() const = 0;
  virtual Scope scope() const { return Scope::rank; }
  /// Runs it on this rank. `rank` and `host` of the results are set by the caller.
  virtual std::vector<Result> run(Context& context) = 0;
};

}  // namespace trireme::selftest
