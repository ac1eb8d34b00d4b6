"""Conversions of float16 for x86-64: the functions of LLVM's run-time library, which no process has.

LLVM calls the first two on processors without F16C (level v2), and the third on all: its code generator makes one
conversion of two, from float64 to float32 and from there to float16, where it knows that the first is exact. They have
LLVM's names and results: exact to float32, rounded to nearest with ties to even from it; a NaN keeps its sign and upper
bits, and becomes quiet.
"""

from __future__ import annotations

__all__ = ["CONVERSIONS"]

CONVERSIONS = """
define hidden float @__extendhfsf2(half %half) nounwind noinline {
  %bits = bitcast half %half to i16
  %word = zext i16 %bits to i32
  %magnitude = and i32 %word, 32767
  %moved = shl i32 %magnitude, 13
  %number = bitcast i32 %moved to float
  %scaled = fmul float %number, 0x46F0000000000000          ; 2^112 moves the bias of the exponent from 15 to 127
  %finite = bitcast float %scaled to i32
  %special = or i32 %moved, 2139095040
  %quiet = or i32 %moved, 2143289344
  %is_nan = icmp ugt i32 %magnitude, 31744
  %is_special = icmp uge i32 %magnitude, 31744
  %known = select i1 %is_nan, i32 %quiet, i32 %special
  %absolute = select i1 %is_special, i32 %known, i32 %finite
  %sign = and i32 %word, 32768
  %high = shl i32 %sign, 16
  %both = or i32 %absolute, %high
  %result = bitcast i32 %both to float
  ret float %result
}

define hidden half @__truncsfhf2(float %number) nounwind noinline {
  %bits = bitcast float %number to i32
  %sign = and i32 %bits, -2147483648
  %magnitude = xor i32 %bits, %sign
  %odd = lshr i32 %magnitude, 13
  %last = and i32 %odd, 1
  %biased = add i32 %magnitude, -939520001                  ; the exponent's bias becomes 15, and just less than half
  %rounded = add i32 %biased, %last
  %normal = lshr i32 %rounded, 13
  %absolute = bitcast i32 %magnitude to float
  %aligned = fadd float %absolute, 5.000000e-01             ; ends where float16 ends below its normal numbers
  %ends = bitcast float %aligned to i32
  %small = add i32 %ends, -1056964608
  %is_small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_small, i32 %small, i32 %normal
  %payload = lshr i32 %magnitude, 13
  %kept = and i32 %payload, 1023
  %quiet = or i32 %kept, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %special = select i1 %is_nan, i32 %quiet, i32 31744
  %is_special = icmp uge i32 %magnitude, 1199570944
  %chosen = select i1 %is_special, i32 %special, i32 %finite
  %high = lshr i32 %sign, 16
  %both = or i32 %chosen, %high
  %short = trunc i32 %both to i16
  %result = bitcast i16 %short to half
  ret half %result
}

define hidden half @__truncdfhf2(double %number) nounwind noinline {
  %single = fptrunc double %number to float
  %half = call half @__truncsfhf2(float %single)
  ret half %half
}
"""
