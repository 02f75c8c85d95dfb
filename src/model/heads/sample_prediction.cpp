#include "src/model/heads/sample_prediction.hpp"

namespace trireme::model {

std::vector<double> SamplePrediction::take_scores() {
  std::vector<double> result;
  for (const Tensor& scores : scores_) {
    const std::size_t before = result.size();
    result.resize(before + static_cast<std::size_t>(scores.view().numel()));
    context_.backend.copy_to_host(context_.stream(), scores.view(),
                                  TensorView(result.data() + before, scores.view().shape()));
    context_.stream().synchronize();
  }
  scores_.clear();
  return result;
}

}  // namespace trireme::model
