#pragma once

#include "src/selftest/check.hpp"

namespace trireme::selftest {

/// The file system of the run's folder. Every rank writes a file, syncs it to disk, reads it back and compares digests.
/// Then it reads the file of a rank on the next node: the folder must be shared. The files are always removed; those of
/// a killed self-test by one at least an hour later.
class FileCheck final : public Check {
 public:
  std::string name() const override { return "file system"; }
  std::string measures() const override { return "digests and rates of files that are written, synced and read"; }
  Scope scope() const override { return Scope::ranks; }
  std::vector<Result> run(Context& context) override;
};

}  // namespace trireme::selftest
