// Whether the cost function (hopper/choose.cu) takes tiles that were measured to be fast: a table from an H200, checked without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/status.hpp"
#include "cuda/hopper/kernels.hpp"

namespace lowbit::cuda {
namespace {

struct Measured {
    const char* product;
    int64_t tokens, rows, columns;
    const char* times;  // of tiles, in microseconds
};

// Every tile forced, each in rounds with torch's product of bf16, on copies larger than the L2 cache.
constexpr Measured table[] = {
    {"bf16 x bf16", 64, 28672, 4096, "128x64 59.3, 128x128_together 62.1, 128x128 62.2, 96x128 69.0, 192x128 71.0"},
    {"bf16 x bf16", 64, 6144, 4096, "128x64 17.1, 96x128 17.8, 128x128_together 19.0, 192x128 22.6, 128x128 24.4"},
    {"bf16 x bf16", 64, 4096, 14336, "128x64 34.6, 96x128 36.4, 128x128_together 42.1, 192x128 56.1, 128x128 69.2"},
    {"bf16 x bf16", 64, 8192, 28672, "128x64 110.1, 128x128_together 112.9, 96x128 124.8, 192x128 128.0, 128x128 143.1"},
    {"bf16 x bf16", 128, 28672, 4096, "128x128 64.3, 128x128_together 65.5, 128x64 69.6, 192x128 73.9, 96x128 75.6"},
    {"bf16 x bf16", 128, 6144, 4096, "96x128 18.2, 128x64 18.6, 128x128_together 19.6, 192x128 23.4, 128x128 25.0"},
    {"bf16 x bf16", 128, 4096, 14336, "96x128 39.0, 128x64 42.4, 128x128_together 46.8, 192x128 56.8, 128x128 69.2"},
    {"bf16 x bf16", 128, 8192, 28672, "128x128_together 117.9, 128x64 118.3, 192x128 135.4, 96x128 135.9, 128x128 167.5"},
    {"bf16 x bf16", 256, 28672, 4096, "128x128_together 98.2, 192x128 101.9, 128x256 103.1, 128x128 106.2, 128x64 108.3, 96x128 111.1"},
    {"bf16 x bf16", 256, 6144, 4096, "96x128 22.2, 192x128 25.6, 128x128_together 26.3, 128x128 26.4, 128x64 30.9, 128x256 31.2"},
    {"bf16 x bf16", 256, 4096, 14336, "128x128_together 48.4, 128x64 51.0, 192x128 63.8, 96x128 64.2, 128x128 84.4, 128x256 86.4"},
    {"bf16 x bf16", 256, 8192, 28672, "128x128_together 174.1, 128x128 174.5, 128x256 193.6, 128x64 207.1, 192x128 255.6, 96x128 271.6"},
    {"bf16 x bf16", 512, 28672, 4096, "128x128 184.3, 128x128_together 191.5, 128x256 194.9, 192x128 203.6, 96x128 210.7"},
    {"bf16 x bf16", 512, 6144, 4096, "192x128 37.9, 96x128 41.7, 128x128_together 44.2, 128x256 52.5, 128x128 53.7"},
    {"bf16 x bf16", 512, 4096, 14336, "128x128_together 85.5, 128x128 86.5, 128x256 90.5, 192x128 125.4, 96x128 134.6"},
    {"bf16 x bf16", 512, 8192, 28672, "128x256 346.1, 128x128 347.3, 128x128_together 349.1, 96x128 390.9, 192x128 395.9"},
    {"bf16 x bf16", 1024, 28672, 4096, "128x128 341.5, 128x256 353.0, 128x128_together 356.1, 192x128 371.2, 96x128 373.0"},
    {"bf16 x bf16", 1024, 6144, 4096, "128x128 77.8, 192x128 79.0, 128x128_together 79.7, 96x128 81.3, 128x256 86.4"},
    {"bf16 x bf16", 1024, 4096, 14336, "128x256 169.3, 128x128_together 169.9, 128x128 171.4, 96x128 193.8, 192x128 200.3"},
    {"bf16 x bf16", 1024, 8192, 28672, "128x128 663.4, 128x256 664.0, 128x128_together 666.1, 192x128 756.3, 96x128 809.6"},
    {"int8:row x int8:row", 64, 28672, 4096, "128x64 31.7, 128x128_together 34.2, 128x128 34.7, 96x128 37.1, 192x128 40.5"},
    {"int8:row x int8:row", 64, 6144, 4096, "128x64 11.4, 96x128 11.9, 128x128_together 12.8, 128x128 14.9, 192x128 15.3"},
    {"int8:row x int8:row", 64, 4096, 14336, "128x64 20.1, 96x128 21.4, 128x128_together 24.6, 192x128 31.8, 128x128 37.1"},
    {"int8:row x int8:row", 64, 8192, 28672, "128x64 58.1, 128x128_together 60.3, 96x128 64.4, 192x128 67.8, 128x128 74.6"},
    {"int8:row x int8:row", 128, 28672, 4096, "128x128 35.8, 128x128_together 36.0, 128x64 37.5, 96x128 39.7, 192x128 42.0"},
    {"int8:row x int8:row", 128, 6144, 4096, "128x64 11.5, 96x128 12.3, 128x128_together 13.2, 128x128 15.4, 192x128 15.7"},
    {"int8:row x int8:row", 128, 4096, 14336, "96x128 22.3, 128x64 23.9, 128x128_together 26.5, 192x128 32.4, 128x128 37.4"},
    {"int8:row x int8:row", 128, 8192, 28672, "128x64 60.8, 128x128_together 62.0, 96x128 67.7, 192x128 69.9, 128x128 80.1"},
    {"int8:row x int8:row", 256, 28672, 4096, "128x128_together 52.4, 96x128 53.1, 128x128 53.8, 128x256 55.2, 192x128 55.5, 128x64 56.5"},
    {"int8:row x int8:row", 256, 6144, 4096, "96x128 13.2, 128x128_together 15.4, 128x128 15.6, 192x128 16.7, 128x64 17.1, 128x256 19.7"},
    {"int8:row x int8:row", 256, 4096, 14336, "128x64 26.2, 128x128_together 27.4, 96x128 30.6, 192x128 33.0, 128x128 38.2, 128x256 43.8"},
    {"int8:row x int8:row", 256, 8192, 28672,
     "128x128 88.3, 128x128_together 88.8, 128x64 96.0, 128x256 99.5, 192x128 114.6, 96x128 136.3"},
    {"int8:row x int8:row", 512, 28672, 4096, "128x128 86.4, 128x128_together 89.4, 192x128 90.1, 128x256 91.9, 96x128 93.3"},
    {"int8:row x int8:row", 512, 6144, 4096, "192x128 20.2, 96x128 20.9, 128x128_together 24.5, 128x256 25.2, 128x128 26.1"},
    {"int8:row x int8:row", 512, 4096, 14336, "128x128_together 41.4, 128x128 42.0, 128x256 47.5, 192x128 60.8, 96x128 62.1"},
    {"int8:row x int8:row", 512, 8192, 28672, "128x256 156.5, 128x128 163.9, 128x128_together 165.7, 96x128 186.8, 192x128 187.7"},
    {"int8:row x int8:row", 1024, 28672, 4096, "128x128 165.5, 96x128 173.0, 128x128_together 174.3, 192x128 175.7, 128x256 181.5"},
    {"int8:row x int8:row", 1024, 6144, 4096, "192x128 37.7, 96x128 38.5, 128x128 39.5, 128x128_together 40.3, 128x256 41.8"},
    {"int8:row x int8:row", 1024, 4096, 14336, "128x256 80.0, 128x128 83.4, 128x128_together 84.1, 96x128 90.9, 192x128 93.3"},
    {"int8:row x int8:row", 1024, 8192, 28672, "128x256 306.4, 128x128 324.8, 128x128_together 325.9, 192x128 367.5, 96x128 373.6"},
    {"fp8_e4m3:row x fp8_e4m3:row", 64, 28672, 4096, "128x64 31.7, 128x128_together 34.1, 128x128 34.5, 96x128 37.2, 192x128 40.2"},
    {"fp8_e4m3:row x fp8_e4m3:row", 64, 6144, 4096, "128x64 11.4, 96x128 11.9, 128x128_together 12.8, 128x128 14.8, 192x128 15.3"},
    {"fp8_e4m3:row x fp8_e4m3:row", 64, 4096, 14336, "128x64 20.1, 96x128 21.3, 128x128_together 24.6, 192x128 31.8, 128x128 37.0"},
    {"fp8_e4m3:row x fp8_e4m3:row", 64, 8192, 28672, "128x64 58.0, 128x128_together 60.4, 96x128 64.8, 192x128 68.6, 128x128 75.3"},
    {"fp8_e4m3:row x fp8_e4m3:row", 128, 28672, 4096, "128x128_together 36.0, 128x128 36.0, 128x64 38.0, 96x128 40.4, 192x128 42.8"},
    {"fp8_e4m3:row x fp8_e4m3:row", 128, 6144, 4096, "128x64 11.5, 96x128 12.2, 128x128_together 13.1, 128x128 15.2, 192x128 15.6"},
    {"fp8_e4m3:row x fp8_e4m3:row", 128, 4096, 14336, "96x128 22.3, 128x64 23.8, 128x128_together 26.4, 192x128 32.4, 128x128 37.3"},
    {"fp8_e4m3:row x fp8_e4m3:row", 128, 8192, 28672, "128x64 62.3, 128x128_together 63.1, 96x128 70.1, 192x128 72.2, 128x128 85.1"},
    {"fp8_e4m3:row x fp8_e4m3:row", 256, 28672, 4096,
     "128x128_together 54.4, 128x128 55.5, 96x128 55.5, 128x256 57.2, 192x128 58.0, 128x64 59.1"},
    {"fp8_e4m3:row x fp8_e4m3:row", 256, 6144, 4096,
     "96x128 13.3, 128x128 15.4, 128x128_together 15.5, 192x128 16.7, 128x64 17.0, 128x256 20.0"},
    {"fp8_e4m3:row x fp8_e4m3:row", 256, 4096, 14336,
     "128x64 27.5, 128x128_together 27.8, 96x128 32.1, 192x128 35.6, 128x128 41.7, 128x256 46.3"},
    {"fp8_e4m3:row x fp8_e4m3:row", 256, 8192, 28672,
     "128x128_together 92.5, 128x128 92.9, 128x256 103.1, 128x64 108.2, 192x128 132.8, 96x128 146.8"},
    {"fp8_e4m3:row x fp8_e4m3:row", 512, 28672, 4096, "128x128 93.7, 128x128_together 101.9, 128x256 105.8, 192x128 107.3, 96x128 111.8"},
    {"fp8_e4m3:row x fp8_e4m3:row", 512, 6144, 4096, "96x128 21.9, 192x128 22.1, 128x128_together 25.2, 128x256 27.7, 128x128 27.7"},
    {"fp8_e4m3:row x fp8_e4m3:row", 512, 4096, 14336, "128x128_together 45.3, 128x128 45.5, 128x256 51.0, 192x128 65.0, 96x128 68.5"},
    {"fp8_e4m3:row x fp8_e4m3:row", 512, 8192, 28672, "128x128 173.1, 128x128_together 174.6, 128x256 177.0, 192x128 201.1, 96x128 206.9"},
    {"fp8_e4m3:row x fp8_e4m3:row", 1024, 28672, 4096, "128x128 180.6, 128x256 195.4, 128x128_together 197.0, 192x128 205.4, 96x128 205.7"},
    {"fp8_e4m3:row x fp8_e4m3:row", 1024, 6144, 4096, "128x128 39.6, 192x128 41.1, 128x128_together 41.5, 96x128 42.2, 128x256 46.6"},
    {"fp8_e4m3:row x fp8_e4m3:row", 1024, 4096, 14336, "128x256 88.3, 128x128 88.7, 128x128_together 89.9, 96x128 101.3, 192x128 104.8"},
    {"fp8_e4m3:row x fp8_e4m3:row", 1024, 8192, 28672, "128x128 354.2, 128x256 355.4, 128x128_together 356.5, 96x128 395.6, 192x128 398.0"},
    {"int4:g128 x bf16", 128, 28672, 4096, "256x128 44.1, 128x128 44.9, 256x64 52.6, 192x128 53.3, 128x64 67.2"},
    {"int4:g128 x bf16", 128, 6144, 4096, "128x128 16.2, 128x64 17.3, 256x64 18.1, 192x128 21.4, 256x128 21.8"},
    {"int4:g128 x bf16", 128, 4096, 14336, "128x64 28.7, 128x128 29.2, 256x64 33.8, 256x128 35.6, 192x128 54.8"},
    {"int4:g128 x bf16", 128, 8192, 28672, "128x128 81.5, 256x64 99.2, 128x64 106.2, 256x128 108.4, 192x128 119.8"},
    {"int4:g128 x bf16", 256, 28672, 4096, "192x128 88.6, 256x128 90.5, 128x256 91.0, 128x128 91.9, 64x256 96.6"},
    {"int4:g128 x bf16", 256, 6144, 4096, "192x128 22.2, 128x128 23.2, 64x256 26.9, 128x256 27.5, 256x128 28.1"},
    {"int4:g128 x bf16", 256, 4096, 14336, "128x128 41.3, 256x128 53.9, 192x128 55.8, 128x256 73.1, 64x256 77.4"},
    {"int4:g128 x bf16", 256, 8192, 28672, "128x128 156.3, 128x256 160.8, 256x128 162.1, 64x256 169.8, 192x128 231.3"},
    {"int4:g128 x bf16", 512, 28672, 4096, "64x256 164.0, 128x128 165.8, 128x256 168.0, 192x128 173.9, 256x128 188.0"},
    {"int4:g128 x bf16", 512, 6144, 4096, "192x128 35.8, 256x128 43.7, 128x128 45.2, 128x256 46.6, 64x256 47.7"},
    {"int4:g128 x bf16", 512, 4096, 14336, "128x128 79.2, 128x256 83.7, 256x128 84.7, 64x256 85.0, 192x128 116.2"},
    {"int4:g128 x bf16", 512, 8192, 28672, "128x128 312.4, 256x128 316.3, 128x256 317.4, 64x256 329.4, 192x128 353.6"},
    {"q6_k x bf16", 512, 28672, 4096, "128x256 167.4, 192x128 223.5, 128x128 226.2, 256x128 229.4"},
    {"q6_k x bf16", 512, 6144, 4096, "192x128 45.3, 128x256 46.7, 256x128 56.1, 128x128 62.8"},
    {"q6_k x bf16", 512, 4096, 14336, "128x256 82.9, 256x128 102.1, 128x128 109.9, 192x128 150.6"},
    {"q6_k x bf16", 512, 8192, 28672, "128x256 306.2, 256x128 392.6, 128x128 445.7, 192x128 463.7"},
    {"q4_k x bf16", 512, 28672, 4096, "128x256 162.1, 192x128 189.8, 256x128 199.1, 128x128 206.1"},
    {"q4_k x bf16", 512, 6144, 4096, "192x128 39.1, 128x256 46.1, 256x128 49.4, 128x128 57.6"},
    {"q4_k x bf16", 512, 4096, 14336, "128x256 81.5, 256x128 91.4, 128x128 100.5, 192x128 129.5"},
    {"q4_k x bf16", 512, 8192, 28672, "128x256 307.9, 256x128 340.4, 192x128 398.4, 128x128 400.2"},
    {"fp8_e4m3:row x bf16", 128, 28672, 4096, "256x128 56.8, 128x128 65.2, 192x128 68.3, 256x64 83.1, 128x64 86.2"},
    {"fp8_e4m3:row x bf16", 128, 6144, 4096, "128x128 21.3, 128x64 22.3, 256x128 24.6, 256x64 25.8, 192x128 26.6"},
    {"fp8_e4m3:row x bf16", 128, 4096, 14336, "128x64 36.9, 128x128 41.0, 256x128 42.1, 256x64 51.8, 192x128 72.9"},
    {"fp8_e4m3:row x bf16", 128, 8192, 28672, "128x128 117.4, 256x128 137.5, 128x64 140.9, 192x128 154.5, 256x64 154.8"},
    {"fp8_e4m3:row x bf16", 1024, 28672, 4096, "128x256 334.4, 256x128 414.8, 192x128 427.1, 128x128 485.8"},
    {"fp8_e4m3:row x bf16", 1024, 6144, 4096, "128x256 76.4, 192x128 90.2, 128x128 101.7, 256x128 117.0"},
    {"fp8_e4m3:row x bf16", 1024, 4096, 14336, "128x256 159.7, 256x128 197.3, 192x128 229.7, 128x128 243.4"},
    {"fp8_e4m3:row x bf16", 1024, 8192, 28672, "128x256 636.2, 256x128 811.8, 192x128 957.2, 128x128 963.0"},
    {"nf4:g64 x bf16", 512, 28672, 4096, "128x256 162.6, 192x128 203.4, 128x128 204.1, 256x128 216.6"},
    {"nf4:g64 x bf16", 512, 6144, 4096, "192x128 41.4, 128x256 45.0, 256x128 52.9, 128x128 56.6"},
    {"nf4:g64 x bf16", 512, 4096, 14336, "128x256 82.0, 256x128 98.1, 128x128 99.4, 192x128 140.8"},
    {"nf4:g64 x bf16", 512, 8192, 28672, "128x256 306.1, 256x128 370.7, 128x128 399.6, 192x128 423.7"},
    {"int4:row x int8:row", 128, 28672, 4096, "128x128 25.9, 256x64 36.2, 128x64 36.9"},
    {"int4:row x int8:row", 128, 6144, 4096, "128x64 11.7, 128x128 11.8, 256x64 14.3"},
    {"int4:row x int8:row", 128, 4096, 14336, "128x64 18.8, 128x128 23.0, 256x64 24.4"},
    {"int4:row x int8:row", 128, 8192, 28672, "128x128 41.2, 128x64 56.6, 256x64 58.2"},
    {"int4:row x int8:row", 512, 28672, 4096, "64x256 83.0, 128x128 84.6, 128x256 88.5"},
    {"int4:row x int8:row", 512, 6144, 4096, "128x128 22.6, 128x256 25.5, 64x256 26.5"},
    {"int4:row x int8:row", 512, 4096, 14336, "128x128 40.2, 128x256 41.9, 64x256 44.5"},
    {"int4:row x int8:row", 512, 8192, 28672, "128x256 148.0, 128x128 148.4, 64x256 163.6"},
    // Of two results files (eedb8c0 and 5328c99).
    {"q4_0 x bf16", 128, 4096, 14336, "128x64 31.2, 128x128 33.7"},
    {"q4_0 x bf16", 512, 4096, 14336, "64x256 90.5, 128x128 98.9"},
    {"q4_0 x bf16", 256, 8192, 28672, "128x256 152.4, 128x128 206.7"},
    {"int4:row x fp8_e4m3:row", 256, 4096, 14336, "128x128 33.4, 128x64 43.0"},
};

struct Family {
    HopperKernels kernels;
    int64_t values;  // of a k block
};

Family family_of(const std::string& product) {
    static const std::map<std::string, Family> families = {
        {"bf16 x bf16", {hopper_bf16(), 64}},
        {"int8:row x int8:row", {hopper_int8(), 128}},
        {"fp8_e4m3:row x fp8_e4m3:row", {hopper_fp8(Element::fp8_e4m3, Element::fp8_e4m3), 128}},
        {"int4:g128 x bf16", {hopper_tiles_bf16(Element::int4, 1, Element::fp16), 64}},
        {"nf4:g64 x bf16", {hopper_tiles_bf16(Element::nf4, 1, Element::fp16), 64}},
        {"q4_k x bf16", {hopper_blocks_bf16(Element::q4_k), 64}},
        {"q6_k x bf16", {hopper_blocks_bf16(Element::q6_k), 64}},
        {"fp8_e4m3:row x bf16", {hopper_widened_bf16(Element::fp8_e4m3), 64}},
        {"int4:row x int8:row", {hopper_tiles_int8(), 128}},
        {"int4:row x fp8_e4m3:row", {hopper_tiles_fp8(), 128}},
        {"q4_0 x bf16", {hopper_tiles_bf16(Element::q4_0, 2, Element::fp16), 64}},
    };
    return families.at(product);
}

// Clusters of 1 to 8 blocks that an H200 holds at a time: of two 66, of four fewer than 32 (products that would need 32 of them are not
// split in four there); the others are guesses of that kind.
int clusters_of_an_h200(int cluster) {
    constexpr int count[] = {0, 132, 66, 40, 30, 24, 18, 16, 14};
    return count[cluster];
}

std::map<std::string, double> times_of(const Measured& row) {
    std::map<std::string, double> times;
    std::istringstream all(row.times);
    for (std::string one; std::getline(all, one, ',');) {
        std::istringstream pair(one);
        std::string tile;
        double us = 0;
        pair >> tile >> us;
        times[tile] = us;
    }
    return times;
}

TEST(HopperChoice, TakesTilesThatWereFast) {
    double sum = 0;
    for (const Measured& row : table) {
        SCOPED_TRACE(testing::Message() << row.product << ", " << row.tokens << " tokens of " << row.rows << " x " << row.columns);
        const Family family = family_of(row.product);
        std::vector<HopperKernel> kernels(family.kernels.begin(), family.kernels.end());
        for (HopperKernel& kernel : kernels)
            if (kernel.exists()) kernel.resident_clusters = clusters_of_an_h200;
        const HopperChoice choice = choose_hopper(kernels, row.rows, row.tokens, core::ceil_div(row.columns, family.values));
        const std::string tile = tile_name(kernels, size_t(choice.kernel));
        const std::map<std::string, double> times = times_of(row);
        ASSERT_TRUE(times.contains(tile)) << tile << " was not measured";
        const auto best = std::min_element(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
        const double ratio = times.at(tile) / best->second;
        EXPECT_LE(ratio, 1.06) << tile << " is chosen, " << best->first << " was faster";
        sum += ratio;
    }
    EXPECT_LE(sum / std::size(table), 1.01);
}

}  // namespace
}  // namespace lowbit::cuda
