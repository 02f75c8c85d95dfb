#include "src/train/finetune/epoch_scoring.hpp"

#include "src/base/log.hpp"
#include "src/train/finetune/task_result.hpp"

namespace trireme::train {

EpochScoring::EpochScoring(const FinetuneTask& task, const TaskData& data, std::int64_t epoch_iterations,
                           const std::map<std::string, std::string>& start, std::map<std::string, std::string>& blobs)
    : task_(task),
      data_(data),
      epoch_iterations_(epoch_iterations),
      blobs_(blobs),
      best_(BestScores::from(start, task, data.valid, data.test)) {
  if (!best_.valid.scores.empty()) best_.put(task_, data_.valid, data_.test, blobs_);
}

bool EpochScoring::evaluate(ParallelModel& model, Trainer& trainer) {
  TaskScores scores = score_samples(model, *data_.valid.samples);
  const TaskResult result = measure(task_, data_.valid, scores);
  const std::int64_t iteration = trainer.progress().iteration;
  const bool is_best = trainer.note_score(result.score);
  log::info("validation after iteration {}, epoch {:.2f}: {}, loss {:.4f}{}", iteration,
            static_cast<double>(iteration) / static_cast<double>(epoch_iterations_), result.text(), scores.loss,
            is_best ? ", the best" : "");
  if (!is_best) return false;
  best_.valid = std::move(scores);
  if (data_.test.samples) {
    best_.test = score_samples(model, *data_.test.samples);
    log::info("test after iteration {}: {}{}", iteration, measure(task_, data_.test, best_.test).text(),
              data_.test.has_labels ? fmt::format(", loss {:.4f}", best_.test.loss) : "");
  }
  best_.put(task_, data_.valid, data_.test, blobs_);
  return true;
}

}  // namespace trireme::train
