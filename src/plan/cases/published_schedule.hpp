#pragma once

#include "src/plan/cases/published_run.hpp"
#include "src/plan/simulation.hpp"

namespace trireme::plan {

/// A schedule with late backwards of weights, for steps of the given times (one chunk a rank), as an automatic
/// scheduler makes it (Qi et al. 2023, arXiv:2401.10241, ZB-2p). Each rank does a backward of inputs where one
/// is ready, else a forward where the memory allows it, else a backward of weights. The memory holds `in_flight`
/// micro-batches, a multiple of the stages; one whose backward of weights is left takes `kept_share` of its place.
parallel::Schedule zero_bubble_schedule(int stages, int micro_batches, int in_flight, double kept_share,
                                        const ScheduleTimes& times);

/// Time that a run's schedule takes. Updates with ZB-2p follow one another without a common end, as its optimizer waits
/// for no norm: their time is that of the rank whose steps take longest.
double schedule_time(const PublishedRun& run, const ScheduleTimes& times);

}  // namespace trireme::plan
