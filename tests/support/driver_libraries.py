"""Libraries in the place of NVIDIA's driver, compiled in C, for machines without a GPU.

They stand in for the hardware's vendor, not for a part of Naiad: what is tested reads them as it reads the real ones.
They answer questions about devices, and cannot compute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

COMPILER: Final = shutil.which("gcc") or shutil.which("cc") or ""
needs_compiler: Final = pytest.mark.skipif(not COMPILER, reason="needs a C compiler, for libraries that stand in")

UUIDS: Final = tuple(f"GPU-{n:02x}010203-0405-0607-0809-0a0b0c0d0e0f" for n in range(2))
"""The identities of the two GPUs."""

_DRIVER: Final = r"""
#include <stdlib.h>
#include <string.h>
static const int major[] = {9, 6}, minor[] = {0, 1};
static int failure(void) { const char *text = getenv("DRIVER_FAILS"); return text ? atoi(text) : 0; }
int cuInit(unsigned flags) { return failure(); }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int length, int device) {
    strncpy(name, device ? "Old Card" : "New Card", length); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = i; uuid[0] = device; return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1000000; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    *value = which == 75 ? major[device] : which == 76 ? minor[device] : 0; return 0; }
static int lost;
int cuLaunchKernel(void) { lost = 710; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *active = !device; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return lost; }
int cuGetErrorString(int code, const char **text) {
    *text = code == 710 ? "device-side assert triggered" : "the driver is broken"; return 0; }
"""

# Device 1 reports its memory alone. NVML counts it first: it knows no CUDA_VISIBLE_DEVICES and no order of the driver.
_NVML: Final = r"""
#include <string.h>
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } memory;
static int devices[] = {0, 1};
static unsigned long long energy = 5000000;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "not supported"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (!strcmp(uuid, "UUID0")) { *device = &devices[0]; return 0; }
    if (!strcmp(uuid, "UUID1")) { *device = &devices[1]; return 0; }
    return 6; }
#define ONLY_FIRST if (*(int *)device) return 3
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { ONLY_FIRST; *mw = 123456; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw) { ONLY_FIRST; *mw = 300000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    ONLY_FIRST; *mj = energy; energy += 1500; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, rates *found) { ONLY_FIRST; found->gpu = 42; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) {
    found->total = 1000000; found->used = *(int *)device ? 900000 : 250000; found->free = 0; return 0; }
"""


def write_driver(folder: Path) -> Path:
    """Put the driver's library into a folder for ``LD_LIBRARY_PATH``: GPU 0 has the capability 9.0, GPU 1 has 6.1.

    With ``DRIVER_FAILS`` in the environment it fails with that number. The process uses GPU 0, and has lost it once it
    has called ``cuLaunchKernel``, which takes no arguments here.
    """
    return compile_library(folder, "libcuda.so.1", _DRIVER)


def write_nvml(folder: Path) -> Path:
    """Put NVML into a folder."""
    return compile_library(folder, "libnvidia-ml.so.1", _NVML.replace("UUID0", UUIDS[0]).replace("UUID1", UUIDS[1]))


def asked(code: str, folder: Path | None, **environment: str) -> str:
    """What a process prints that has the libraries of a folder."""
    path = {} if folder is None else {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip() + done.stderr.strip()


def compile_library(folder: Path, name: str, source: str) -> Path:
    """Put a library in C into a folder; the folder."""
    folder.mkdir(exist_ok=True)
    command = [COMPILER, "-shared", "-fPIC", "-w", "-x", "c", "-o", str(folder / name), "-"]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return folder
