#pragma once

#include <string_view>

namespace trireme::cuda {

/// Returns whether a value of NCCL_ALGO allows algorithms that add in the network or in NVLink switches (NVLS,
/// NVLSTree, CollNetDirect, CollNetChain). Their order of additions may differ from call to call; rings and trees have
/// a fixed one. The value is a list of names, or "^" and a list of excluded ones. Lists for single functions
/// ("allreduce:tree") count as allowing them: other functions keep every algorithm.
bool allows_unordered_sums(std::string_view nccl_algo);

/// Excludes those algorithms by NCCL_ALGO, which NCCL reads when its first communicator is made. Throws ConfigError if
/// the user has set NCCL_ALGO to a value that allows them.
void forbid_unordered_sums();

}  // namespace trireme::cuda
