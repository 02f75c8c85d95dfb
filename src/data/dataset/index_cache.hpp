#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Keeps arrays that take long to compute for other ranks and later runs. The description of arrays names all that they
/// depend on: the same description always means the same bytes.
class IndexCache {
 public:
  using Arrays = std::vector<std::span<const std::byte>>;
  struct Kept {
    Arrays arrays;                      ///< each aligned to 64 bytes
    std::shared_ptr<const void> owner;  ///< owner of their memory; null where nothing sound is kept
  };
  virtual ~IndexCache() = default;
  virtual Kept find(const TokenStore& store, const std::string& description) = 0;
  /// Keeps arrays, or logs why that failed.
  virtual void keep(const TokenStore& store, const std::string& description, const Arrays& arrays) = 0;
};

}  // namespace trireme::data
