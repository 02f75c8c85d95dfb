#pragma once

#include <set>
#include <string>

#include "src/data/dataset/index_cache.hpp"

namespace trireme::io {

/// An `IndexCache` in files, mapped into memory: FOLDER/DIGEST.index, where the digest is that of the description. Each
/// file holds its description and a digest of its entire content. A file that is damaged, truncated or of another
/// description is detected and rebuilt. Files are renamed into place when complete: any number of jobs may write and
/// read the same file at once. All files may be deleted at any time.
class IndexFiles final : public data::IndexCache {
 public:
  /// Uses `folder` or, if empty, the folder "index-cache" beside each corpus. Less than `min_bytes` is not stored:
  /// computing it is as fast as reading it.
  explicit IndexFiles(std::string folder, std::size_t min_bytes = std::size_t{1} << 20);

  Kept find(const data::SampleOrder& order) override;
  Kept keep(const data::SampleOrder& order, const Arrays& arrays) override;

 private:
  std::string folder_of(const data::TokenStore& store) const;
  std::string path_of(const data::SampleOrder& order) const;
  /// Reads the file of an order. If it is missing or damaged, returns nothing and logs the reason.
  static Kept read_sound(const std::string& path, const data::SampleOrder& order);
  std::string folder_;
  std::size_t min_bytes_;
  std::set<std::string> refused_;  // folders that cannot be written, already reported
};

}  // namespace trireme::io
