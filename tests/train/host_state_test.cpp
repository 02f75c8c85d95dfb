// A checkpoint's tensors for files: where they are on the CPU, and a copy that stays while training goes on.
#include "src/train/state_tensors.hpp"

#include <gmock/gmock.h>

namespace trireme::train {
namespace {

class HostStateOfTheCpu : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  Tensor weights_{*backend_, DType::fp32, {3}};
  std::vector<checkpoint::StateTensor> tensors_ = {{"model/w", {3}, Box::whole({3}), 0, weights_.view(), true}};
  void set(float value) { std::fill_n(weights_.view().as<float>(), 3, value); }
};

TEST_F(HostStateOfTheCpu, IsTheTensorsThemselves) {
  HostState state(*backend_, tensors_);
  EXPECT_EQ(state.tensors()[0].data.data(), weights_.view().data());
  EXPECT_EQ(state.tensors()[0].name, "model/w");
}

TEST_F(HostStateOfTheCpu, KeepsWhatItFetchedWhereItIsACopy) {
  HostState state(*backend_, tensors_, HostCopies::Allocation::always);
  set(1);
  state.fetch();
  set(2);
  EXPECT_EQ(state.tensors()[0].data.as<float>()[2], 1);
  state.store();
  EXPECT_EQ(weights_.view().as<float>()[2], 1);
}

}  // namespace
}  // namespace trireme::train
