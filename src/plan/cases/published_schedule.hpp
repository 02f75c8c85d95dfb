#pragma once

#include "src/plan/cases/published_run.hpp"
#include "src/plan/simulation.hpp"

namespace trireme::plan {

/// A schedule with late backwards of weights, for steps of the given times (one chunk per rank), as produced by an
/// automatic scheduler (Qi et al. 2023, arXiv:2401.10241, ZB-2p). Each rank runs a backward of inputs if one is ready,
/// else a forward if memory allows it, else a backward of weights. The memory holds `in_flight` micro-batches, a
/// multiple of the stages; one that only lacks its backward of weights takes `kept_share` of that.
parallel::Schedule zero_bubble_schedule(int stages, int micro_batches, int in_flight, double kept_share,
                                        const ScheduleTimes& times);

/// Time of a run's schedule. Updates with ZB-2p follow each other without a barrier, since its optimizer does not wait
/// for the norm: their time is that of the slowest rank.
double schedule_time(const PublishedRun& run, const ScheduleTimes& times);

}  // namespace trireme::plan
