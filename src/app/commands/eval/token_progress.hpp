#pragma once

#include "src/app/job/progress_bar.hpp"
#include "src/base/log.hpp"
#include "src/infer/scoring.hpp"

namespace trireme::app {

/// Shows the progress in tokens on rank 0, and the rate at the end.
class TokenProgress {
 public:
  explicit TokenProgress(bool is_root) : is_root_(is_root) {}

  void update(std::int64_t done, std::int64_t total) {
    if (is_root_) bar_.update(done, total);
  }
  /// `positions` counts tokens and padding.
  void end(std::int64_t tokens, std::int64_t positions) {
    bar_.end();
    if (!is_root_) return;
    log::info("read {} tokens, with padding {}, in {:.1f} s: {:.0f} tokens/s", tokens, positions, timer_.elapsed_s(),
              static_cast<double>(tokens) / timer_.elapsed_s());
  }

 private:
  bool is_root_;
  Timer timer_;
  LoggedProgress bar_{"scoring", "scored", "tokens"};
};

/// Scores texts, and shows the progress on rank 0. Collective.
inline infer::TextScores scores_of(train::ParallelModel& model, const data::ScoredTexts& texts, bool is_root) {
  TokenProgress progress(is_root);
  infer::TextScores scores =
      infer::score_texts(model, texts, [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  progress.end(scores.tokens, scores.positions);
  return scores;
}

}  // namespace trireme::app
