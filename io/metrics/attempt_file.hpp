#pragma once

#include <string>
#include <vector>

#include "io/metrics/append_file.hpp"
#include "src/report/run.hpp"

namespace trireme::io {

/// Attempts of a run, one JSON object per line, in a file beside its metrics: the start of each job with its grid and
/// options, its checkpoints, and its end. `trireme report` reads it; src/report/README.md describes the lines.
class AttemptFile {
 public:
  /// Returns the file's name for a metrics file.
  static std::string beside(const std::string& metrics_path) { return metrics_path + ".lives"; }

  /// Opens the file. Throws as `AppendFile`, here and below.
  explicit AttemptFile(const std::string& metrics_path);
  enum class Opening { replace, append };
  /// Records the start of an attempt, after the existing ones or replacing them.
  void note_start(Opening opening, const report::AttemptStart& start);
  void note_save(const report::SaveNote& save);
  void note_rewind(const report::RewindNote& rewind);
  void note_end(const report::AttemptEnd& end);

 private:
  AppendFile file_;
};

/// Reads the attempts of a run. Ignores damaged lines and unknown kinds. Empty if there is no file.
std::vector<report::Attempt> read_attempts(const std::string& path);

/// Reads the lines that a batch file (jobs/lives.sh) writes into the run folder, likewise.
std::vector<report::JobNote> read_job_notes(const std::string& path);

}  // namespace trireme::io
