#pragma once

#include <nccl.h>

/// NCCL for tests without a GPU: a rank of a group is alone in its process, and its collectives do what they do in a
/// group of one, late, on the stream of the fake CUDA runtime. Calls return ncclInProgress first, as those of
/// communicators that do not block.
namespace fake_nccl {

/// Forgets failures.
void reset();
/// The next call of this function returns `status`.
void fail_next(const char* function, ncclResult_t status);
/// From now on every communicator reports this error when it is asked.
void break_communicators(ncclResult_t status);
/// Communicators that were neither destroyed nor aborted; those that were aborted so far.
int live();
int aborted();

}  // namespace fake_nccl
