#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/metrics/tensorboard_file.hpp"
#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/train/timing/device_peak.hpp"
#include "src/train/timing/rank_times.hpp"

namespace trireme::app {

/// Options of the reports of a run besides the log and `--metrics-file`.
struct ReportOptions {
  bool throughput = false;
  std::optional<train::DevicePeak> peak;  ///< given by the user
  bool progress = false;
  int timing_level = 0;
  train::TimingOption timing_option = train::TimingOption::minmax;
  bool straggler = false;
  std::string flight_record;  ///< folder; empty: none
  io::TensorboardOptions tensorboard;
  bool profile = false;
  std::int64_t profile_start = 10, profile_end = 12;  ///< iterations done before the recording, and after it
  std::vector<std::int64_t> profile_ranks = {0};

  void declare(Options& options);
  void settle(int ranks, bool cuda_graphs, Problems& problems);

 private:
  std::string peak_text_;
  bool no_learning_rate_ = false, no_loss_scale_ = false;
};

}  // namespace trireme::app
