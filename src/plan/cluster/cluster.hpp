#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/comm/bus_bandwidth.hpp"
#include "src/plan/cluster/measured_kernels.hpp"

namespace trireme::plan {

/// Overhead of a flash attention block, in forward steps of 128 queries and 64 keys.
constexpr double block_overhead_steps = 1.8;

/// Constants of a rank's device that convert work to time.
struct Device {
  std::string name;       ///< part of the driver's name of the device
  double memory_gb;       ///< 10^9 bytes
  double peak_tflops;     ///< dense bf16
  double product_tflops;  ///< reached at 8192^3
  double copy_gbs;        ///< bytes read and written per second by a large copy
  int multiprocessors;
  double clock_ghz;
  double mma_clocks;                    ///< mma.sync m16n8k16 of attention, on a quarter of a multiprocessor
  double half_tile_share = 1;           ///< rate of product tiles of half the largest size; its square: of a quarter
  double attention_backward_share = 1;  ///< rate at which that backward runs its instructions, as a share
  bool warp_groups = false;             ///< attention has kernels by products of warp groups (warp_groups.hpp)
  bool fuses_gelu = false;              ///< GELU and its derivative run inside products
  double memory_share = 0.9;            ///< rate of memory-bound kernels, as a share of the copy's
  double norm_backward_share = 0.7;     ///< that of the backward of norms
  double launch_gap_us = 2;             ///< between two kernels of a stream
  double graph_gap_us = 0.5;            ///< between two kernels of a graph
  double host_wait_us = 20;             ///< for a result that the host reads before it enqueues more
  double fp8_tflops = 0;                ///< products of FP8, reached at 8192^3; 0: it has none
  bool has_bf16 = true;                 ///< products of bf16 on its matrix units; else fp16 alone
  MeasuredKernels measured = {};        ///< instead of the rates above, if any
};

/// Those of H200, H100, A100 of 80 GB, all SXM, for which step times are published.
std::span<const Device> gpus();
/// Returns the GPU whose name is part of the driver's name for the device; null without constants for it.
const Device* find_gpu(const std::string& device);

/// A connection of one rank, in terms of its collectives.
struct Link {
  double gbs = 0;         ///< bandwidth in one direction by the data sheet, GB/s
  double share = 1;       ///< part of it that is the bus bandwidth of large collectives (bus_bandwidth.hpp)
  double latency_us = 0;  ///< time of a message without data, a step of a collective
  /// Collectives by bytes, instead of the above: "OPERATION of RANKS" (collective_name), without extents.
  MeasuredKernels measured = {};

  double bus_gbs() const { return gbs * share; }
};

/// Host memory of a node, and the link of each of its devices to it.
struct Host {
  double memory_gb = 1000;    ///< 10^9 bytes
  double memory_gbs = 300;    ///< peak rate of the memory by the data sheet, GB/s
  double memory_share = 0.8;  ///< part of it that long copies reach
  double link_gbs = 25;       ///< rate of long copies of one device, in each direction, GB/s
};

/// Name of a collective among `ranks`, as Link::measured has it.
std::string collective_name(Collective collective, int ranks);

/// Machines for which a job is planned: equal nodes, each with equal ranks.
struct Cluster {
  std::string name;
  Device device;  ///< device of every rank
  int ranks_per_node = 8;
  Link node;               ///< between ranks of one node
  Link network;            ///< from one rank to other nodes, with all ranks of its node communicating
  int cores_per_node = 0;  ///< shared by the ranks of a node; 0: every rank has its own device
  Host host = {};
};

/// Milliseconds in which every rank copies this many bytes from its device to host memory, and from there, at once.
/// The ranks of a node share its memory.
double host_copy_ms(const Cluster& cluster, double to_host, double from_host);

/// The cluster called `name`; ConfigError, with the known names, for another name.
Cluster cluster_preset(const std::string& name);
/// The cluster "cpu": this machine, with one rank per core available to the process. Kernels have the fp32 rates of one
/// core of an AMD EPYC with AVX-512, measured with its neighbour equally loaded. Calibrate for other processors.
Cluster cpu_cluster();
const std::vector<Cluster>& cluster_presets();
/// Names of the presets: "dgx-2h, dgx-a100-40gb, ...".
std::string cluster_preset_names();

/// Parses a cluster from the text of an INI file; `name` is for messages. Lines are `key = value`, sections [cluster],
/// [device], [node], [network] and [host], comments begin with # or ;. Unset values are those of the preset named by
/// `base` in [cluster]; without a base every link but the host's is required. ConfigError, with the file's line and
/// field, for unknown, missing or impossible values.
Cluster parse_cluster(const std::string& name, const std::string& text);

}  // namespace trireme::plan
