#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trireme::cuda {

/// Choice for a product: a cuBLASLt algorithm, with the epilogue fused into it or in separate kernels.
struct Choice {
  bool fused = false;
  std::uint64_t workspace_bytes = 0;
  std::array<std::uint64_t, 8> algorithm{};  ///< cublasLtMatmulAlgo_t, storable per version of the library
  friend bool operator==(const Choice&, const Choice&) = default;
};

/// The choices made so far, by product, and the file that keeps them for the next run. A line of the file holds,
/// between tabs: device, version of cuBLASLt, product, "fused" or "separate", bytes of workspace, and the algorithm's
/// words. Choices for other devices and versions stay in it.
class AlgorithmCache {
 public:
  /// Reads `path`, if there is such a file; "" keeps nothing. Invalid lines are ignored, with a warning. A path that is
  /// not a file, or a file with only other lines, is never written.
  AlgorithmCache(std::string path, std::string device, std::uint64_t version);
  /// Writes the file, as `write` does.
  ~AlgorithmCache();
  AlgorithmCache& operator=(AlgorithmCache&&) = delete;

  std::optional<Choice> find(const std::string& product) const;
  /// Keeps the choice for this run and the next write.
  void keep(const std::string& product, const Choice& choice);
  /// Writes the choices kept so far, merged with those written by other ranks since. Does nothing if the file has them.
  /// A failure is a warning, and the next run chooses again.
  void write();

 private:
  using Lines = std::map<std::string, Choice>;  // key: the fields before the choice
  Lines read(int& bad_lines) const;
  std::string line_key(const std::string& product) const;

  std::string path_;
  std::string device_;
  std::uint64_t version_;
  Lines choices_;
  Lines kept_;  // by this run
  bool is_changed_ = false;
};

}  // namespace trireme::cuda
