#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/attributes.hpp"

namespace trireme::checkpoint {

/// The attempts that led to a state of a run, oldest first. It tells a state that the run continues from another that
/// the run has left: by a restart from an earlier checkpoint, or because it is of another run.
class Branch {
 public:
  Branch() = default;
  /// Reads "ID:ITERATION ID:ITERATION ..."; CheckpointError for other texts.
  explicit Branch(const std::string& text);
  std::string text() const;

  /// Adds an attempt that continues after `iteration`.
  void add(const std::string& id, std::int64_t iteration) { attempts_.push_back({id, iteration}); }
  /// Returns whether this branch continues from, or is at, what `earlier` computed in `iteration` iterations.
  bool passes(const Branch& earlier, std::int64_t iteration) const;

 private:
  struct Attempt {
    std::string id;
    std::int64_t begin = 0;  ///< iterations done before
    friend bool operator==(const Attempt&, const Attempt&) = default;
  };
  std::vector<Attempt> attempts_;
};

/// Attributes of the checkpoints of a run with local checkpoints.
struct Lineage {
  Branch branch;
  std::int64_t base = -1;  ///< iteration of its newest checkpoint in the shared folder then; -1: none
};
void put_lineage(Attributes& attributes, const Lineage& lineage);
/// Empty for a checkpoint of another run.
std::optional<Lineage> lineage_of(const Attributes& attributes);

}  // namespace trireme::checkpoint
