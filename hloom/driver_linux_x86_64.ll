; the driver of hloom as LLVM IR, made by python -m hloom.native_setup from source 89f85c3bbbbb1675bbaa4c85d3925916233917c705a901ff4d09e09de002f2a1
; ModuleID = '<string>'
source_filename = "<string>"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

declare i32 @pthread_mutex_lock(i64) local_unnamed_addr

declare i32 @pthread_cond_broadcast(i64) local_unnamed_addr

declare i32 @pthread_mutex_unlock(i64) local_unnamed_addr

declare i32 @sched_yield() local_unnamed_addr

; Function Attrs: nounwind
define void @hloom_worker(i64 %.1) local_unnamed_addr #0 {
.3:
  %.11.i = inttoptr i64 %.1 to ptr
  %.12.i = getelementptr i8, ptr %.11.i, i64 648
  %.13.i = load i64, ptr %.12.i, align 4, !noalias !0
  %.34.i = getelementptr i8, ptr %.11.i, i64 640
  %.50.i = add nsw i64 %.1, 768
  %.54.i = getelementptr i8, ptr %.11.i, i64 512
  %.72.i = add nsw i64 %.1, 896
  %.41.i.i = getelementptr i8, ptr %.11.i, i64 384
  %.48.i.i = getelementptr i8, ptr %.11.i, i64 392
  %.55.i.i = getelementptr i8, ptr %.11.i, i64 400
  %.62.i.i = getelementptr i8, ptr %.11.i, i64 408
  %.69.i.i = getelementptr i8, ptr %.11.i, i64 416
  %.118.i.i = getelementptr i8, ptr %.11.i, i64 256
  br label %B52.i

B52.i:                                            ; preds = %B52.i.backedge, %.3
  %seen.2.0.i = phi i64 [ -1, %.3 ], [ %job.2.2.i, %B52.i.backedge ]
  %.24.i = load atomic i64, ptr %.11.i seq_cst, align 8, !noalias !0
  %.25.i = ashr i64 %.24.i, 32
  %.30.i = icmp eq i64 %.25.i, %seen.2.0.i
  br i1 %.30.i, label %B118.i, label %B768.i

B118.i:                                           ; preds = %B52.i, %B678.i
  %spins.3.1.i = phi i64 [ %spins.4.2.i, %B678.i ], [ 0, %B52.i ]
  %.35.i = load atomic i64, ptr %.34.i seq_cst, align 8, !noalias !0
  %.36.not.i = icmp eq i64 %.35.i, 0
  br i1 %.36.not.i, label %B172.i, label %hloom_worker.body.exit

B172.i:                                           ; preds = %B118.i
  %.41.i = add nsw i64 %spins.3.1.i, 1
  %.46.not.i = icmp slt i64 %spins.3.1.i, %.13.i
  br i1 %.46.not.i, label %B678.i, label %B194.i

B194.i:                                           ; preds = %B172.i
  %.51.i = tail call i32 @pthread_mutex_lock(i64 %.50.i) #0, !noalias !0
  %.55.i = atomicrmw add ptr %.54.i, i64 1 seq_cst, align 8, !noalias !0
  %.59.i = load atomic i64, ptr %.11.i seq_cst, align 8, !noalias !0
  %.60.i = ashr i64 %.59.i, 32
  %.62.i = icmp eq i64 %.60.i, %seen.2.0.i
  br i1 %.62.i, label %B346.i, label %B578.i

B346.i:                                           ; preds = %B194.i
  %.67.i = load atomic i64, ptr %.34.i seq_cst, align 8, !noalias !0
  %.68.i = icmp eq i64 %.67.i, 0
  br i1 %.68.i, label %B396.i, label %B578.i

B396.i:                                           ; preds = %B346.i, %B528.i
  %.76.i = tail call i32 @pthread_cond_wait(i64 %.72.i, i64 %.50.i) #0, !noalias !0
  %.80.i = load atomic i64, ptr %.11.i seq_cst, align 8, !noalias !0
  %.81.i = ashr i64 %.80.i, 32
  %.83.i = icmp eq i64 %.81.i, %seen.2.0.i
  br i1 %.83.i, label %B528.i, label %B578.i

B528.i:                                           ; preds = %B396.i
  %.88.i = load atomic i64, ptr %.34.i seq_cst, align 8, !noalias !0
  %.89.i = icmp eq i64 %.88.i, 0
  br i1 %.89.i, label %B396.i, label %B578.i

B578.i:                                           ; preds = %B528.i, %B396.i, %B346.i, %B194.i
  %.94.i = atomicrmw add ptr %.54.i, i64 -1 seq_cst, align 8, !noalias !0
  %.98.i = tail call i32 @pthread_mutex_unlock(i64 %.50.i) #0, !noalias !0
  br label %B678.i

B678.i:                                           ; preds = %B578.i, %B172.i
  %spins.4.2.i = phi i64 [ 0, %B578.i ], [ %.41.i, %B172.i ]
  tail call void asm sideeffect "pause", "~{memory}"() #0, !noalias !0
  %.109.i = load atomic i64, ptr %.11.i seq_cst, align 8, !noalias !0
  %.110.i = ashr i64 %.109.i, 32
  %.114.i = icmp eq i64 %.110.i, %seen.2.0.i
  br i1 %.114.i, label %B118.i, label %B768.i

B768.i:                                           ; preds = %B678.i, %B52.i
  %job.2.2.i = phi i64 [ %.25.i, %B52.i ], [ %.110.i, %B678.i ]
  %.17.i1.i = load atomic i64, ptr %.11.i seq_cst, align 8, !noalias !3
  %.22.i2.i = and i64 %.17.i1.i, 4294967295
  %.27.i3.i = ashr i64 %.17.i1.i, 32
  %.29.i4.i = icmp ne i64 %.27.i3.i, %job.2.2.i
  %.32.i5.i = icmp eq i64 %.22.i2.i, 0
  %or.cond.i6.i = or i1 %.29.i4.i, %.32.i5.i
  br i1 %or.cond.i6.i, label %B52.i.backedge, label %B94.i.i

B52.i.backedge:                                   ; preds = %B768.i, %B456.i.i, %B468.i.i
  br label %B52.i

B94.i.i:                                          ; preds = %B768.i, %B454.i.i
  %.22.i9.i = phi i64 [ %.22.i.i, %B454.i.i ], [ %.22.i2.i, %B768.i ]
  %.17.i8.i = phi i64 [ %.17.i.i, %B454.i.i ], [ %.17.i1.i, %B768.i ]
  %done.2.0.i7.i = phi i64 [ %done.3.1.i.i, %B454.i.i ], [ 0, %B768.i ]
  %.42.i.i = load atomic i64, ptr %.41.i.i monotonic, align 8, !noalias !3
  %.49.i.i = load atomic i64, ptr %.48.i.i monotonic, align 8, !noalias !3
  %.56.i.i = load atomic i64, ptr %.55.i.i monotonic, align 8, !noalias !3
  %.63.i.i = load atomic i64, ptr %.62.i.i monotonic, align 8, !noalias !3
  %.70.i.i = load atomic i64, ptr %.69.i.i monotonic, align 8, !noalias !3
  %.77.i.i = add nsw i64 %.17.i8.i, -1
  %.82.i.i = cmpxchg ptr %.11.i, i64 %.17.i8.i, i64 %.77.i.i seq_cst seq_cst, align 8, !noalias !3
  %.83.i.i = extractvalue { i64, i1 } %.82.i.i, 1
  br i1 %.83.i.i, label %B362.i.i, label %B454.i.i

B362.i.i:                                         ; preds = %B94.i.i
  %.72.i.i = sub nsw i64 %.70.i.i, %.22.i9.i
  %.87.i.i = mul nsw i64 %.72.i.i, %.63.i.i
  %.89.i.i = add nsw i64 %.72.i.i, 1
  %.91.i.i = mul nsw i64 %.89.i.i, %.63.i.i
  %.98.i.i = tail call i64 @llvm.smin.i64(i64 %.91.i.i, i64 %.56.i.i)
  %.101.i.i = inttoptr i64 %.42.i.i to ptr
  tail call void %.101.i.i(i64 %.49.i.i, i64 %.87.i.i, i64 %.98.i.i) #0, !noalias !3
  %.104.i.i = add nsw i64 %done.2.0.i7.i, 1
  br label %B454.i.i

B454.i.i:                                         ; preds = %B362.i.i, %B94.i.i
  %done.3.1.i.i = phi i64 [ %.104.i.i, %B362.i.i ], [ %done.2.0.i7.i, %B94.i.i ]
  %.17.i.i = load atomic i64, ptr %.11.i seq_cst, align 8, !noalias !3
  %.22.i.i = and i64 %.17.i.i, 4294967295
  %.27.i.i = ashr i64 %.17.i.i, 32
  %.29.i.i = icmp ne i64 %.27.i.i, %job.2.2.i
  %.32.i.i = icmp eq i64 %.22.i.i, 0
  %or.cond.i.i = or i1 %.29.i.i, %.32.i.i
  br i1 %or.cond.i.i, label %B456.i.i, label %B94.i.i

B456.i.i:                                         ; preds = %B454.i.i
  %.113.not.i.i = icmp eq i64 %done.3.1.i.i, 0
  br i1 %.113.not.i.i, label %B52.i.backedge, label %B468.i.i

B468.i.i:                                         ; preds = %B456.i.i
  %.119.i.i = atomicrmw add ptr %.118.i.i, i64 %done.3.1.i.i seq_cst, align 8, !noalias !3
  br label %B52.i.backedge

hloom_worker.body.exit:                           ; preds = %B118.i
  ret void
}

declare i32 @pthread_cond_wait(i64, i64) local_unnamed_addr

; Function Attrs: nounwind
define void @hloom_stop(i64 %.1) local_unnamed_addr #0 {
.3:
  %.5.i = inttoptr i64 %.1 to ptr
  %.6.i = getelementptr i8, ptr %.5.i, i64 640
  store atomic i64 1, ptr %.6.i seq_cst, align 8, !noalias !6
  %.9.i = add nsw i64 %.1, 768
  %.10.i = tail call i32 @pthread_mutex_lock(i64 %.9.i) #0, !noalias !6
  %.12.i = add nsw i64 %.1, 896
  %.13.i = tail call i32 @pthread_cond_broadcast(i64 %.12.i) #0, !noalias !6
  %.16.i = tail call i32 @pthread_mutex_unlock(i64 %.9.i) #0, !noalias !6
  ret void
}

; Function Attrs: nounwind
define void @hloom_spin(i64 %.1, i64 %.2) local_unnamed_addr #0 {
.4:
  %.95.i = inttoptr i64 %.1 to ptr
  %.62.i1 = icmp sgt i64 %.2, 0
  br i1 %.62.i1, label %B36.i, label %hloom_spin.body.exit

B36.i:                                            ; preds = %.4, %B94.i
  %.72.i2 = phi i64 [ %.72.i, %B94.i ], [ 1, %.4 ]
  %.97.i = load atomic i64, ptr %.95.i seq_cst, align 8, !noalias !9
  %.98.not.i = icmp eq i64 %.97.i, 0
  br i1 %.98.not.i, label %B94.i, label %hloom_spin.body.exit

B94.i:                                            ; preds = %B36.i
  tail call void asm sideeffect "pause", "~{memory}"() #0, !noalias !9
  %.72.i = add nuw i64 %.72.i2, 1
  %exitcond.not = icmp eq i64 %.72.i2, %.2
  br i1 %exitcond.not, label %hloom_spin.body.exit, label %B36.i

hloom_spin.body.exit:                             ; preds = %B36.i, %B94.i, %.4
  ret void
}

; Function Attrs: nounwind
define void @hloom_run(i64 %.1, i64 %.2, i64 %.3, i64 %.4, i64 %.5, i64 %.6, i64 %.7) local_unnamed_addr #0 {
.9:
  %.77.i2 = icmp sgt i64 %.5, 0
  br i1 %.77.i2, label %B36.i.lr.ph, label %B208.i

B36.i.lr.ph:                                      ; preds = %.9
  %.119.i = inttoptr i64 %.7 to ptr
  %.127.i = inttoptr i64 %.6 to ptr
  br label %B36.i

B36.i:                                            ; preds = %B36.i.lr.ph, %B36.i
  %.42.i.03 = phi i64 [ 0, %B36.i.lr.ph ], [ %.87.i, %B36.i ]
  %.87.i = add nuw nsw i64 %.42.i.03, 1
  %.109.i = mul nuw nsw i64 %.42.i.03, 24
  %.111.i = add nsw i64 %.109.i, %.4
  %.112.i = inttoptr i64 %.111.i to ptr
  %.114.i = load i64, ptr %.112.i, align 4, !noalias !12
  %.116.i = getelementptr i8, ptr %.112.i, i64 8
  %.117.i = load i64, ptr %.116.i, align 4, !noalias !12
  %.120.i = getelementptr i64, ptr %.119.i, i64 %.117.i
  %.121.i = load i64, ptr %.120.i, align 4, !noalias !12
  %.123.i = getelementptr i8, ptr %.112.i, i64 16
  %.124.i = load i64, ptr %.123.i, align 4, !noalias !12
  %.125.i = add nsw i64 %.124.i, %.121.i
  %.128.i = getelementptr i64, ptr %.127.i, i64 %.114.i
  store i64 %.125.i, ptr %.128.i, align 4, !noalias !12
  %exitcond.not = icmp eq i64 %.87.i, %.5
  br i1 %exitcond.not, label %B208.i, label %B36.i

B208.i:                                           ; preds = %B36.i, %.9
  %.135.i = icmp sgt i64 %.3, 0
  br i1 %.135.i, label %B226.i.preheader, label %hloom_run.body.exit

B226.i.preheader:                                 ; preds = %B208.i
  %.357.i = inttoptr i64 %.6 to ptr
  %.67.i.i = inttoptr i64 %.1 to ptr
  %.68.i.i = getelementptr i8, ptr %.67.i.i, i64 664
  %.77.i.i = getelementptr i8, ptr %.67.i.i, i64 128
  %.200.i.i = getelementptr i8, ptr %.67.i.i, i64 384
  %.205.i.i = getelementptr i8, ptr %.67.i.i, i64 392
  %.210.i.i = getelementptr i8, ptr %.67.i.i, i64 400
  %.215.i.i = getelementptr i8, ptr %.67.i.i, i64 408
  %.220.i.i = getelementptr i8, ptr %.67.i.i, i64 416
  %.224.i.i = getelementptr i8, ptr %.67.i.i, i64 256
  %.236.i.i = getelementptr i8, ptr %.67.i.i, i64 512
  %.242.i.i = add nsw i64 %.1, 768
  %.246.i.i = add nsw i64 %.1, 896
  %.261.i.i = getelementptr i8, ptr %.67.i.i, i64 648
  br label %B226.i

B226.i:                                           ; preds = %B226.i.preheader, %B1836.i
  %step.5.0.i = phi i64 [ %step.6.1.i, %B1836.i ], [ 0, %B226.i.preheader ]
  %.139.i = shl nsw i64 %step.5.0.i, 6
  %.141.i = add nsw i64 %.139.i, %.2
  %.146.i = inttoptr i64 %.141.i to ptr
  %.148.i = load i64, ptr %.146.i, align 4, !noalias !12
  %.153.i = add nsw i64 %step.5.0.i, 1
  switch i64 %.148.i, label %hloom_run.body.exit [
    i64 1, label %B322.i
    i64 2, label %B590.i
    i64 3, label %B648.i
    i64 4, label %B800.i
    i64 5, label %B1000.i
    i64 6, label %B1378.i
  ]

B322.i:                                           ; preds = %B226.i
  %.162.i = getelementptr i8, ptr %.146.i, i64 8
  %.163.i = load i64, ptr %.162.i, align 4, !noalias !12
  %.169.i = getelementptr i8, ptr %.146.i, i64 16
  %.170.i = load i64, ptr %.169.i, align 4, !noalias !12
  %.171.i = shl nsw i64 %.170.i, 3
  %.173.i = add nsw i64 %.171.i, %.6
  %.179.i = getelementptr i8, ptr %.146.i, i64 24
  %.180.i = load i64, ptr %.179.i, align 4, !noalias !12
  %.186.i = getelementptr i8, ptr %.146.i, i64 32
  %.187.i = load i64, ptr %.186.i, align 4, !noalias !12
  %.192.i = icmp sgt i64 %.187.i, 0
  %.196.not.i = icmp sgt i64 %.180.i, %.187.i
  %or.cond.i = select i1 %.192.i, i1 %.196.not.i, i1 false
  br i1 %or.cond.i, label %B0.endif.i.i, label %B486.i

B486.i:                                           ; preds = %B322.i
  %.205.i = inttoptr i64 %.163.i to ptr
  tail call void %.205.i(i64 %.173.i, i64 0, i64 %.180.i) #0, !noalias !12
  br label %B1836.i

B98.i.i:                                          ; preds = %B0.endif.i.i
  %.78.i.i = cmpxchg ptr %.77.i.i, i64 0, i64 1 seq_cst seq_cst, align 8, !noalias !15
  %.79.i.i = extractvalue { i64, i1 } %.78.i.i, 1
  br i1 %.79.i.i, label %B266.i.i, label %B144.i.i

B144.i.i:                                         ; preds = %B0.endif.i.i, %B98.i.i
  %.136.i1.i = icmp sgt i64 %spec.select.i.i, 0
  br i1 %.136.i1.i, label %B176.i.lr.ph.i, label %B1836.i

B176.i.lr.ph.i:                                   ; preds = %B144.i.i
  %.182.i.i = inttoptr i64 %.163.i to ptr
  br label %B176.i.i

B176.i.i:                                         ; preds = %B176.i.i, %B176.i.lr.ph.i
  %.101.i.02.i = phi i64 [ 0, %B176.i.lr.ph.i ], [ %.146.i.i, %B176.i.i ]
  %.146.i.i = add nuw nsw i64 %.101.i.02.i, 1
  %.169.i.i = mul nuw nsw i64 %.101.i.02.i, %.187.i
  %.172.i.i = mul nuw nsw i64 %.146.i.i, %.187.i
  %.179.i.i = tail call i64 @llvm.smin.i64(i64 %.172.i.i, i64 %.180.i)
  tail call void %.182.i.i(i64 %.173.i, i64 %.169.i.i, i64 %.179.i.i) #0, !noalias !15
  %exitcond.not.i = icmp eq i64 %.146.i.i, %spec.select.i.i
  br i1 %exitcond.not.i, label %B1836.i, label %B176.i.i

B266.i.i:                                         ; preds = %B98.i.i
  %.190.i.i = load atomic i64, ptr %.67.i.i seq_cst, align 8, !noalias !15
  %.191.i.i = lshr i64 %.190.i.i, 32
  %.192.i.i = add nuw nsw i64 %.191.i.i, 1
  %.193.i.i = and i64 %.192.i.i, 1073741823
  store atomic i64 %.163.i, ptr %.200.i.i monotonic, align 8, !noalias !15
  store atomic i64 %.173.i, ptr %.205.i.i monotonic, align 8, !noalias !15
  store atomic i64 %.180.i, ptr %.210.i.i monotonic, align 8, !noalias !15
  store atomic i64 %.187.i, ptr %.215.i.i monotonic, align 8, !noalias !15
  store atomic i64 %spec.select.i.i, ptr %.220.i.i monotonic, align 8, !noalias !15
  store atomic i64 0, ptr %.224.i.i monotonic, align 8, !noalias !15
  %.227.i.i = shl nuw nsw i64 %.193.i.i, 32
  %.229.i.i = or i64 %.227.i.i, %spec.select.i.i
  store atomic i64 %.229.i.i, ptr %.67.i.i seq_cst, align 8, !noalias !15
  %.237.i.i = load atomic i64, ptr %.236.i.i seq_cst, align 8, !noalias !15
  %.238.not.i.i = icmp eq i64 %.237.i.i, 0
  br i1 %.238.not.i.i, label %B852.i.i, label %B696.i.i

B696.i.i:                                         ; preds = %B266.i.i
  %.243.i.i = tail call i32 @pthread_mutex_lock(i64 %.242.i.i) #0, !noalias !15
  %.247.i.i = tail call i32 @pthread_cond_broadcast(i64 %.246.i.i) #0, !noalias !15
  %.251.i.i = tail call i32 @pthread_mutex_unlock(i64 %.242.i.i) #0, !noalias !15
  br label %B852.i.i

B852.i.i:                                         ; preds = %B696.i.i, %B266.i.i
  %.17.i1.i.i = load atomic i64, ptr %.67.i.i seq_cst, align 8, !noalias !18
  %.22.i2.i.i = and i64 %.17.i1.i.i, 4294967295
  %.27.i3.i.i = ashr i64 %.17.i1.i.i, 32
  %.29.i4.i.i = icmp ne i64 %.27.i3.i.i, %.193.i.i
  %.32.i5.i.i = icmp eq i64 %.22.i2.i.i, 0
  %or.cond.i6.i.i = or i1 %.29.i4.i.i, %.32.i5.i.i
  br i1 %or.cond.i6.i.i, label %hloom_work.exit.i, label %B94.i.i.i

B94.i.i.i:                                        ; preds = %B852.i.i, %B454.i.i.i
  %.22.i9.i.i = phi i64 [ %.22.i.i.i, %B454.i.i.i ], [ %.22.i2.i.i, %B852.i.i ]
  %.17.i8.i.i = phi i64 [ %.17.i.i.i, %B454.i.i.i ], [ %.17.i1.i.i, %B852.i.i ]
  %done.2.0.i7.i.i = phi i64 [ %done.3.1.i.i.i, %B454.i.i.i ], [ 0, %B852.i.i ]
  %.42.i.i.i = load atomic i64, ptr %.200.i.i monotonic, align 8, !noalias !18
  %.49.i.i.i = load atomic i64, ptr %.205.i.i monotonic, align 8, !noalias !18
  %.56.i.i.i = load atomic i64, ptr %.210.i.i monotonic, align 8, !noalias !18
  %.63.i.i.i = load atomic i64, ptr %.215.i.i monotonic, align 8, !noalias !18
  %.70.i.i.i = load atomic i64, ptr %.220.i.i monotonic, align 8, !noalias !18
  %.77.i.i.i = add nsw i64 %.17.i8.i.i, -1
  %.82.i.i.i = cmpxchg ptr %.67.i.i, i64 %.17.i8.i.i, i64 %.77.i.i.i seq_cst seq_cst, align 8, !noalias !18
  %.83.i.i.i = extractvalue { i64, i1 } %.82.i.i.i, 1
  br i1 %.83.i.i.i, label %B362.i.i.i, label %B454.i.i.i

B362.i.i.i:                                       ; preds = %B94.i.i.i
  %.72.i.i.i = sub nsw i64 %.70.i.i.i, %.22.i9.i.i
  %.87.i.i.i = mul nsw i64 %.72.i.i.i, %.63.i.i.i
  %.89.i.i.i = add nsw i64 %.72.i.i.i, 1
  %.91.i.i.i = mul nsw i64 %.89.i.i.i, %.63.i.i.i
  %.98.i.i.i = tail call i64 @llvm.smin.i64(i64 %.91.i.i.i, i64 %.56.i.i.i)
  %.101.i.i.i = inttoptr i64 %.42.i.i.i to ptr
  tail call void %.101.i.i.i(i64 %.49.i.i.i, i64 %.87.i.i.i, i64 %.98.i.i.i) #0, !noalias !18
  %.104.i.i.i = add nsw i64 %done.2.0.i7.i.i, 1
  br label %B454.i.i.i

B454.i.i.i:                                       ; preds = %B362.i.i.i, %B94.i.i.i
  %done.3.1.i.i.i = phi i64 [ %.104.i.i.i, %B362.i.i.i ], [ %done.2.0.i7.i.i, %B94.i.i.i ]
  %.17.i.i.i = load atomic i64, ptr %.67.i.i seq_cst, align 8, !noalias !18
  %.22.i.i.i = and i64 %.17.i.i.i, 4294967295
  %.27.i.i.i = ashr i64 %.17.i.i.i, 32
  %.29.i.i.i = icmp ne i64 %.27.i.i.i, %.193.i.i
  %.32.i.i.i = icmp eq i64 %.22.i.i.i, 0
  %or.cond.i.i.i = or i1 %.29.i.i.i, %.32.i.i.i
  br i1 %or.cond.i.i.i, label %B456.i.i.i, label %B94.i.i.i

B456.i.i.i:                                       ; preds = %B454.i.i.i
  %.113.not.i.i.i = icmp eq i64 %done.3.1.i.i.i, 0
  br i1 %.113.not.i.i.i, label %hloom_work.exit.i, label %B468.i.i.i

B468.i.i.i:                                       ; preds = %B456.i.i.i
  %.119.i.i.i = atomicrmw add ptr %.224.i.i, i64 %done.3.1.i.i.i seq_cst, align 8, !noalias !18
  br label %hloom_work.exit.i

hloom_work.exit.i:                                ; preds = %B468.i.i.i, %B456.i.i.i, %B852.i.i
  %.262.i.i = load i64, ptr %.261.i.i, align 4, !noalias !15
  %.269.i.i = load atomic i64, ptr %.224.i.i seq_cst, align 8, !noalias !15
  %.271.not.i.i = icmp eq i64 %.269.i.i, %spec.select.i.i
  br i1 %.271.not.i.i, label %B1110.i.i, label %B980.i.i

B980.i.i:                                         ; preds = %hloom_work.exit.i, %B1060.i.i
  %spins.2.0.i.i = phi i64 [ %.274.i.i, %B1060.i.i ], [ 0, %hloom_work.exit.i ]
  %.274.i.i = add nuw nsw i64 %spins.2.0.i.i, 1
  %.280.not.i.i = icmp slt i64 %spins.2.0.i.i, %.262.i.i
  br i1 %.280.not.i.i, label %B1032.i.i, label %B1002.i.i

B1002.i.i:                                        ; preds = %B980.i.i
  %.282.i.i = tail call i32 @sched_yield() #0, !noalias !15
  br label %B1060.i.i

B1032.i.i:                                        ; preds = %B980.i.i
  tail call void asm sideeffect "pause", "~{memory}"() #0, !noalias !15
  br label %B1060.i.i

B1060.i.i:                                        ; preds = %B1032.i.i, %B1002.i.i
  %.292.i.i = load atomic i64, ptr %.224.i.i seq_cst, align 8, !noalias !15
  %.294.not.i.i = icmp eq i64 %.292.i.i, %spec.select.i.i
  br i1 %.294.not.i.i, label %B1110.i.i, label %B980.i.i

B1110.i.i:                                        ; preds = %B1060.i.i, %hloom_work.exit.i
  store atomic i64 0, ptr %.77.i.i seq_cst, align 8, !noalias !15
  br label %B1836.i

B0.endif.i.i:                                     ; preds = %B322.i
  %.20.i.i = add nsw i64 %.180.i, -1
  %.40.i.i = sdiv i64 %.20.i.i, %.187.i
  %.41.i.i = srem i64 %.20.i.i, %.187.i
  %.42.i.i = xor i64 %.41.i.i, %.187.i
  %.43.i.i = icmp sgt i64 %.42.i.i, -1
  %0 = zext i1 %.43.i.i to i64
  %spec.select.i.i = add nsw i64 %.40.i.i, %0
  %.69.i.i = load i64, ptr %.68.i.i, align 4, !noalias !15
  %.70.i.i = icmp eq i64 %.69.i.i, 0
  %.73.i.i = icmp sgt i64 %spec.select.i.i, 2147483647
  %or.cond.i.i = select i1 %.70.i.i, i1 true, i1 %.73.i.i
  br i1 %or.cond.i.i, label %B144.i.i, label %B98.i.i

B590.i:                                           ; preds = %B226.i
  %.223.i = getelementptr i8, ptr %.146.i, i64 8
  %.224.i = load i64, ptr %.223.i, align 4, !noalias !12
  br label %B1836.i

B648.i:                                           ; preds = %B226.i
  %.237.i = getelementptr i8, ptr %.146.i, i64 16
  %.238.i = load i64, ptr %.237.i, align 4, !noalias !12
  %.241.i = getelementptr i64, ptr %.357.i, i64 %.238.i
  %.242.i = load i64, ptr %.241.i, align 4, !noalias !12
  %.243.i = inttoptr i64 %.242.i to ptr
  %.244.i = load i8, ptr %.243.i, align 1, !noalias !12
  %.246.i = icmp eq i8 %.244.i, 0
  br i1 %.246.i, label %B742.i, label %B1836.i

B742.i:                                           ; preds = %B648.i
  %.250.i = getelementptr i8, ptr %.146.i, i64 8
  %.251.i = load i64, ptr %.250.i, align 4, !noalias !12
  br label %B1836.i

B800.i:                                           ; preds = %B226.i
  %.267.i = getelementptr i8, ptr %.146.i, i64 8
  %.268.i = load i64, ptr %.267.i, align 4, !noalias !12
  %.271.i = getelementptr i64, ptr %.357.i, i64 %.268.i
  %.272.i = load i64, ptr %.271.i, align 4, !noalias !12
  %.275.i = getelementptr i8, ptr %.146.i, i64 16
  %.276.i = load i64, ptr %.275.i, align 4, !noalias !12
  %.279.i = getelementptr i64, ptr %.357.i, i64 %.276.i
  %.280.i = load i64, ptr %.279.i, align 4, !noalias !12
  %.283.i = getelementptr i8, ptr %.146.i, i64 24
  %.284.i = load i64, ptr %.283.i, align 4, !noalias !12
  %.285.i = tail call i64 @memmove(i64 %.272.i, i64 %.280.i, i64 %.284.i) #0, !noalias !12
  br label %B1836.i

B1000.i:                                          ; preds = %B226.i
  %.292.i = getelementptr i8, ptr %.146.i, i64 8
  %.293.i = load i64, ptr %.292.i, align 4, !noalias !12
  %.296.i = getelementptr i64, ptr %.357.i, i64 %.293.i
  %.297.i = load i64, ptr %.296.i, align 4, !noalias !12
  %.298.i = inttoptr i64 %.297.i to ptr
  %.299.i = load i8, ptr %.298.i, align 1, !noalias !12
  %.300.i = zext i8 %.299.i to i64
  %.301.i = add nsw i64 %.297.i, 1
  %.302.i = inttoptr i64 %.301.i to ptr
  %.303.i = load i8, ptr %.302.i, align 1, !noalias !12
  %.304.i = zext i8 %.303.i to i64
  %.305.i = shl nuw nsw i64 %.304.i, 8
  %.306.i = or disjoint i64 %.305.i, %.300.i
  %.307.i = add nsw i64 %.297.i, 2
  %.308.i = inttoptr i64 %.307.i to ptr
  %.309.i = load i8, ptr %.308.i, align 1, !noalias !12
  %.310.i = zext i8 %.309.i to i64
  %.311.i = shl nuw nsw i64 %.310.i, 16
  %.312.i = or disjoint i64 %.306.i, %.311.i
  %.313.i = add nsw i64 %.297.i, 3
  %.314.i = inttoptr i64 %.313.i to ptr
  %.315.i = load i8, ptr %.314.i, align 1, !noalias !12
  %.316.i = zext i8 %.315.i to i64
  %.317.i = shl nuw nsw i64 %.316.i, 24
  %.318.i = or disjoint i64 %.312.i, %.317.i
  %.321.i = getelementptr i8, ptr %.146.i, i64 24
  %.322.i = load i64, ptr %.321.i, align 4, !noalias !12
  %.325.i = getelementptr i8, ptr %.146.i, i64 16
  %.326.i = load i64, ptr %.325.i, align 4, !noalias !12
  %.327.i = add nsw i64 %.326.i, -1
  %.333.i = tail call i64 @llvm.smin.i64(i64 %.327.i, i64 %.318.i)
  %1 = getelementptr i64, ptr %.357.i, i64 %.322.i
  %.337.i = getelementptr i64, ptr %1, i64 %.333.i
  %.338.i = load i64, ptr %.337.i, align 4, !noalias !12
  br label %B1836.i

B1378.i:                                          ; preds = %B226.i
  %.347.i = getelementptr i8, ptr %.146.i, i64 8
  %.348.i = load i64, ptr %.347.i, align 4, !noalias !12
  %.351.i = getelementptr i8, ptr %.146.i, i64 24
  %.352.i = load i64, ptr %.351.i, align 4, !noalias !12
  %.358.i = getelementptr i64, ptr %.357.i, i64 %.348.i
  %.359.i = load i64, ptr %.358.i, align 4, !noalias !12
  %.362.i = getelementptr i64, ptr %.357.i, i64 %.359.i
  %.363.i = load i64, ptr %.362.i, align 4, !noalias !12
  %.370.i = getelementptr i64, ptr %.357.i, i64 %.352.i
  %.371.i = load i64, ptr %.370.i, align 4, !noalias !12
  %.374.i = getelementptr i64, ptr %.357.i, i64 %.371.i
  %.375.i = load i64, ptr %.374.i, align 4, !noalias !12
  %.381.i = getelementptr i8, ptr %.146.i, i64 16
  %.382.i = load i64, ptr %.381.i, align 4, !noalias !12
  %.383.i = add nsw i64 %.382.i, %.348.i
  %.438.i4 = icmp sgt i64 %.382.i, 0
  br i1 %.438.i4, label %B1630.i, label %B1696.i

B1630.i:                                          ; preds = %B1378.i, %B1630.i
  %.403.i.05 = phi i64 [ %.448.i, %B1630.i ], [ %.348.i, %B1378.i ]
  %.448.i = add nsw i64 %.403.i.05, 1
  %.472.i = getelementptr i64, ptr %.357.i, i64 %.403.i.05
  %.473.i = load i64, ptr %.472.i, align 4, !noalias !12
  %.477.i = getelementptr i64, ptr %.357.i, i64 %.473.i
  store i64 %.375.i, ptr %.477.i, align 4, !noalias !12
  %.438.i = icmp slt i64 %.448.i, %.383.i
  br i1 %.438.i, label %B1630.i, label %B1696.i

B1696.i:                                          ; preds = %B1630.i, %B1378.i
  %.482.i = getelementptr i8, ptr %.146.i, i64 32
  %.483.i = load i64, ptr %.482.i, align 4, !noalias !12
  %.485.i = add nsw i64 %.483.i, %.352.i
  %.541.i6 = icmp sgt i64 %.483.i, 0
  br i1 %.541.i6, label %B1764.i, label %B1836.i

B1764.i:                                          ; preds = %B1696.i, %B1764.i
  %.506.i.07 = phi i64 [ %.551.i, %B1764.i ], [ %.352.i, %B1696.i ]
  %.551.i = add nsw i64 %.506.i.07, 1
  %.575.i = getelementptr i64, ptr %.357.i, i64 %.506.i.07
  %.576.i = load i64, ptr %.575.i, align 4, !noalias !12
  %.580.i = getelementptr i64, ptr %.357.i, i64 %.576.i
  store i64 %.363.i, ptr %.580.i, align 4, !noalias !12
  %.541.i = icmp slt i64 %.551.i, %.485.i
  br i1 %.541.i, label %B1764.i, label %B1836.i

B1836.i:                                          ; preds = %B1764.i, %B176.i.i, %B1696.i, %B1110.i.i, %B144.i.i, %B1000.i, %B800.i, %B742.i, %B648.i, %B590.i, %B486.i
  %step.6.1.i = phi i64 [ %.153.i, %B486.i ], [ %.153.i, %B1696.i ], [ %.224.i, %B590.i ], [ %.153.i, %B648.i ], [ %.153.i, %B800.i ], [ %.338.i, %B1000.i ], [ %.251.i, %B742.i ], [ %.153.i, %B144.i.i ], [ %.153.i, %B1110.i.i ], [ %.153.i, %B176.i.i ], [ %.153.i, %B1764.i ]
  %.594.i = icmp slt i64 %step.6.1.i, %.3
  br i1 %.594.i, label %B226.i, label %hloom_run.body.exit

hloom_run.body.exit:                              ; preds = %B1836.i, %B226.i, %B208.i
  ret void
}

declare i64 @memmove(i64, i64, i64) local_unnamed_addr

; Function Attrs: nounwind
define internal fastcc i64 @hloom_enter(i64 %.1, i64 %.2) unnamed_addr #0 {
.4:
  %.11.i = inttoptr i64 %.2 to ptr
  %.12.i = getelementptr i8, ptr %.11.i, i64 56
  %.13.i = cmpxchg ptr %.12.i, i64 0, i64 1 seq_cst seq_cst, align 8, !noalias !21
  %.14.i = extractvalue { i64, i1 } %.13.i, 1
  %.24.i = inttoptr i64 %.1 to ptr
  br i1 %.14.i, label %B126.i, label %B50.i

B50.i:                                            ; preds = %.4
  %.18.i = getelementptr i8, ptr %.24.i, i64 24
  %.19.i = load i64, ptr %.18.i, align 4, !noalias !21
  %.20.i = tail call ptr @Py_IncRef(i64 %.19.i) #0, !noalias !21
  br label %hloom_enter.body.exit

B126.i:                                           ; preds = %.4
  %.26.i = load i64, ptr %.24.i, align 4, !noalias !21
  %.36.i = getelementptr i8, ptr %.11.i, i64 48
  %.37.i = load i64, ptr %.36.i, align 4, !noalias !21
  %.42.i = and i64 %.37.i, 2
  %.43.not.i = icmp eq i64 %.42.i, 0
  br i1 %.43.not.i, label %B538.i, label %B238.i

B238.i:                                           ; preds = %B126.i
  %.49.i = inttoptr i64 %.26.i to ptr
  %.50.i = getelementptr i8, ptr %.49.i, i64 664
  %.51.i = load i64, ptr %.50.i, align 4, !noalias !21
  %.52.i = icmp eq i64 %.51.i, 0
  br i1 %.52.i, label %B288.i, label %B538.i

B288.i:                                           ; preds = %B238.i
  %.59.i = getelementptr i8, ptr %.49.i, i64 656
  %.60.i = load i64, ptr %.59.i, align 4, !noalias !21
  %.61.i = icmp sgt i64 %.60.i, 1
  br i1 %.61.i, label %B338.i, label %B538.i

B338.i:                                           ; preds = %B288.i
  %.65.i = getelementptr i8, ptr %.24.i, i64 8
  %.66.i = load i64, ptr %.65.i, align 4, !noalias !21
  %.67.i = tail call i64 @PyObject_CallNoArgs(i64 %.66.i) #0, !noalias !21
  %.72.i = icmp eq i64 %.67.i, 0
  br i1 %.72.i, label %B418.i, label %B466.i

B418.i:                                           ; preds = %B338.i
  store atomic i64 0, ptr %.12.i seq_cst, align 8, !noalias !21
  br label %hloom_enter.body.exit

B466.i:                                           ; preds = %B338.i
  %.81.i = tail call ptr @Py_DecRef(i64 %.67.i) #0, !noalias !21
  %.85.i = load i64, ptr %.24.i, align 4, !noalias !21
  br label %B538.i

B538.i:                                           ; preds = %B466.i, %B288.i, %B238.i, %B126.i
  %pool.2.0.i = phi i64 [ %.85.i, %B466.i ], [ %.26.i, %B288.i ], [ %.26.i, %B238.i ], [ %.26.i, %B126.i ]
  %.93.i = and i64 %.37.i, 1
  %.94.not.i = icmp eq i64 %.93.i, 0
  br i1 %.94.not.i, label %B598.i, label %B570.i

B570.i:                                           ; preds = %B538.i
  %.96.i = tail call i64 @PyEval_SaveThread() #0, !noalias !21
  br label %B598.i

B598.i:                                           ; preds = %B570.i, %B538.i
  %thread.2.0.i = phi i64 [ %.96.i, %B570.i ], [ 0, %B538.i ]
  %.103.i = load i64, ptr %.11.i, align 4, !noalias !21
  %.106.i = getelementptr i8, ptr %.11.i, i64 8
  %.107.i = load i64, ptr %.106.i, align 4, !noalias !21
  %.110.i = getelementptr i8, ptr %.11.i, i64 16
  %.111.i = load i64, ptr %.110.i, align 4, !noalias !21
  %.114.i = getelementptr i8, ptr %.11.i, i64 24
  %.115.i = load i64, ptr %.114.i, align 4, !noalias !21
  %.118.i = getelementptr i8, ptr %.11.i, i64 32
  %.119.i = load i64, ptr %.118.i, align 4, !noalias !21
  %.122.i = getelementptr i8, ptr %.11.i, i64 40
  %.123.i = load i64, ptr %.122.i, align 4, !noalias !21
  tail call void @hloom_run(i64 %pool.2.0.i, i64 %.103.i, i64 %.107.i, i64 %.111.i, i64 %.115.i, i64 %.119.i, i64 %.123.i), !noalias !21
  br i1 %.94.not.i, label %B926.i, label %B896.i

B896.i:                                           ; preds = %B598.i
  %.131.i = tail call ptr @PyEval_RestoreThread(i64 %thread.2.0.i) #0, !noalias !21
  br label %B926.i

B926.i:                                           ; preds = %B896.i, %B598.i
  store atomic i64 0, ptr %.12.i seq_cst, align 8, !noalias !21
  %.139.i = getelementptr i8, ptr %.24.i, i64 16
  %.140.i = load i64, ptr %.139.i, align 4, !noalias !21
  %.141.i = tail call ptr @Py_IncRef(i64 %.140.i) #0, !noalias !21
  br label %hloom_enter.body.exit

hloom_enter.body.exit:                            ; preds = %B50.i, %B418.i, %B926.i
  %.5.0 = phi i64 [ %.140.i, %B926.i ], [ 0, %B418.i ], [ %.19.i, %B50.i ]
  ret i64 %.5.0
}

declare ptr @Py_IncRef(i64) local_unnamed_addr

declare i64 @PyObject_CallNoArgs(i64) local_unnamed_addr

declare ptr @Py_DecRef(i64) local_unnamed_addr

declare i64 @PyEval_SaveThread() local_unnamed_addr

declare ptr @PyEval_RestoreThread(i64) local_unnamed_addr

; Function Attrs: nounwind
define i64 @hloom_entry_run(i64 %.1, i64 %.2) local_unnamed_addr #0 {
.4:
  %.8.i = tail call i64 @PyLong_AsLongLong(i64 %.2) #0, !noalias !24
  %.13.i = icmp eq i64 %.8.i, -1
  br i1 %.13.i, label %B46.i, label %B86.i

B46.i:                                            ; preds = %.4
  %.15.i = tail call i64 @PyErr_Occurred() #0, !noalias !24
  %.16.not.i = icmp eq i64 %.15.i, 0
  br i1 %.16.not.i, label %B86.i, label %hloom_entry_run.body.exit

B86.i:                                            ; preds = %B46.i, %.4
  %.21.i = tail call i64 @PyLong_AsLongLong(i64 %.1) #0, !noalias !24
  %.23.i = tail call fastcc i64 @hloom_enter(i64 %.21.i, i64 %.8.i), !noalias !24
  br label %hloom_entry_run.body.exit

hloom_entry_run.body.exit:                        ; preds = %B46.i, %B86.i
  %storemerge.i = phi i64 [ %.23.i, %B86.i ], [ 0, %B46.i ]
  ret i64 %storemerge.i
}

declare i64 @PyLong_AsLongLong(i64) local_unnamed_addr

declare i64 @PyErr_Occurred() local_unnamed_addr

; Function Attrs: nounwind
define i64 @hloom_entry_call(i64 %.1, i64 %.2, i64 %.3) local_unnamed_addr #0 {
.5:
  %.11.i = tail call i64 @PyLong_AsLongLong(i64 %.1) #0, !noalias !27
  %.19.i = icmp sgt i64 %.3, 0
  br i1 %.19.i, label %B50.i, label %B228.i

B50.i:                                            ; preds = %.5
  %.22.i = inttoptr i64 %.2 to ptr
  %.24.i = load i64, ptr %.22.i, align 4, !noalias !27
  %.25.i = tail call i64 @PyLong_AsLongLong(i64 %.24.i) #0, !noalias !27
  switch i64 %.25.i, label %B172.i [
    i64 -1, label %B120.i
    i64 0, label %B228.i
  ]

B120.i:                                           ; preds = %B50.i
  %.38.i = tail call i64 @PyErr_Occurred() #0, !noalias !27
  %.39.not.i = icmp eq i64 %.38.i, 0
  br i1 %.39.not.i, label %B172.i, label %hloom_entry_call.body.exit

B172.i:                                           ; preds = %B50.i, %B120.i
  %.47.i = add nsw i64 %.3, -1
  %.49.i = inttoptr i64 %.25.i to ptr
  %.50.i = getelementptr i8, ptr %.49.i, i64 64
  %.51.i = load i64, ptr %.50.i, align 4, !noalias !27
  %.52.i = icmp sgt i64 %.47.i, %.51.i
  br i1 %.52.i, label %B228.i, label %B340.i

B228.i:                                           ; preds = %B50.i, %.5, %B172.i
  %.55.i = inttoptr i64 %.11.i to ptr
  %.56.i = getelementptr i8, ptr %.55.i, i64 48
  %.57.i = load i64, ptr %.56.i, align 4, !noalias !27
  %.60.i = getelementptr i8, ptr %.55.i, i64 56
  %.61.i = load i64, ptr %.60.i, align 4, !noalias !27
  %.62.i = tail call ptr @PyErr_SetString(i64 %.57.i, i64 %.61.i) #0, !noalias !27
  br label %hloom_entry_call.body.exit

B340.i:                                           ; preds = %B172.i
  %.67.i = getelementptr i8, ptr %.49.i, i64 56
  %.68.i = cmpxchg ptr %.67.i, i64 0, i64 1 seq_cst seq_cst, align 8, !noalias !27
  %.69.i = extractvalue { i64, i1 } %.68.i, 1
  br i1 %.69.i, label %B462.i, label %B386.i

B386.i:                                           ; preds = %B340.i
  %.72.i = inttoptr i64 %.11.i to ptr
  %.73.i = getelementptr i8, ptr %.72.i, i64 24
  %.74.i = load i64, ptr %.73.i, align 4, !noalias !27
  %.75.i = tail call ptr @Py_IncRef(i64 %.74.i) #0, !noalias !27
  br label %hloom_entry_call.body.exit

B462.i:                                           ; preds = %B340.i
  %.140.i7.not = icmp eq i64 %.3, 1
  br i1 %.140.i7.not, label %B990.i, label %B538.i.lr.ph

B538.i.lr.ph:                                     ; preds = %B462.i
  %.80.i = getelementptr i8, ptr %.49.i, i64 40
  %.81.i = load i64, ptr %.80.i, align 4, !noalias !27
  %.191.i = inttoptr i64 %.11.i to ptr
  %.192.i = getelementptr i8, ptr %.191.i, i64 32
  %.205.i = getelementptr i8, ptr %.191.i, i64 40
  %.236.i = inttoptr i64 %.81.i to ptr
  br label %B538.i

B538.i:                                           ; preds = %B538.i.lr.ph, %B948.i
  %.150.i9 = phi i64 [ 2, %B538.i.lr.ph ], [ %.150.i, %B948.i ]
  %.105.i.08 = phi i64 [ 1, %B538.i.lr.ph ], [ %.150.i9, %B948.i ]
  %.178.i = getelementptr i64, ptr %.22.i, i64 %.105.i.08
  %.179.i = load i64, ptr %.178.i, align 4, !noalias !27
  %.184.i = inttoptr i64 %.179.i to ptr
  %.185.i = getelementptr i8, ptr %.184.i, i64 8
  %.186.i = load i64, ptr %.185.i, align 4, !noalias !27
  %.193.i = load i64, ptr %.192.i, align 4, !noalias !27
  %.195.i = icmp eq i64 %.186.i, %.193.i
  br i1 %.195.i, label %B664.i, label %B696.i

B664.i:                                           ; preds = %B538.i
  %.198.i = tail call i64 @PyLong_AsLongLong(i64 %.179.i) #0, !noalias !27
  br label %B948.i

B696.i:                                           ; preds = %B538.i
  %.206.i = load i64, ptr %.205.i, align 4, !noalias !27
  %.208.i = icmp eq i64 %.186.i, %.206.i
  br i1 %.208.i, label %B746.i, label %B790.i

B746.i:                                           ; preds = %B696.i
  %.212.i = getelementptr i8, ptr %.184.i, i64 16
  %.213.i = load i64, ptr %.212.i, align 4, !noalias !27
  br label %B948.i

B790.i:                                           ; preds = %B696.i
  store atomic i64 0, ptr %.67.i seq_cst, align 8, !noalias !27
  %.223.i = getelementptr i8, ptr %.191.i, i64 48
  %.224.i = load i64, ptr %.223.i, align 4, !noalias !27
  %.227.i = getelementptr i8, ptr %.191.i, i64 56
  %.228.i = load i64, ptr %.227.i, align 4, !noalias !27
  %.229.i = tail call ptr @PyErr_SetString(i64 %.224.i, i64 %.228.i) #0, !noalias !27
  br label %hloom_entry_call.body.exit

B948.i:                                           ; preds = %B746.i, %B664.i
  %address.2.1.i = phi i64 [ %.198.i, %B664.i ], [ %.213.i, %B746.i ]
  %0 = getelementptr i64, ptr %.236.i, i64 %.105.i.08
  %.237.i = getelementptr i8, ptr %0, i64 -8
  store i64 %address.2.1.i, ptr %.237.i, align 4, !noalias !27
  %.150.i = add nuw i64 %.150.i9, 1
  %exitcond.not = icmp eq i64 %.150.i9, %.3
  br i1 %exitcond.not, label %B990.i, label %B538.i

B990.i:                                           ; preds = %B948.i, %B462.i
  store atomic i64 0, ptr %.67.i seq_cst, align 8, !noalias !27
  %.246.i = tail call fastcc i64 @hloom_enter(i64 %.11.i, i64 %.25.i), !noalias !27
  br label %hloom_entry_call.body.exit

hloom_entry_call.body.exit:                       ; preds = %B120.i, %B228.i, %B386.i, %B790.i, %B990.i
  %.6.0 = phi i64 [ 0, %B228.i ], [ 0, %B790.i ], [ %.246.i, %B990.i ], [ %.74.i, %B386.i ], [ 0, %B120.i ]
  ret i64 %.6.0
}

declare ptr @PyErr_SetString(i64, i64) local_unnamed_addr

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.smin.i64(i64, i64) #1

attributes #0 = { nounwind }
attributes #1 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!0 = !{!1}
!1 = distinct !{!1, !2, !"hloom_worker.body: %retptr"}
!2 = distinct !{!2, !"hloom_worker.body"}
!3 = !{!4, !1}
!4 = distinct !{!4, !5, !"hloom_work.body: %retptr"}
!5 = distinct !{!5, !"hloom_work.body"}
!6 = !{!7}
!7 = distinct !{!7, !8, !"hloom_stop.body: %retptr"}
!8 = distinct !{!8, !"hloom_stop.body"}
!9 = !{!10}
!10 = distinct !{!10, !11, !"hloom_spin.body: %retptr"}
!11 = distinct !{!11, !"hloom_spin.body"}
!12 = !{!13}
!13 = distinct !{!13, !14, !"hloom_run.body: %retptr"}
!14 = distinct !{!14, !"hloom_run.body"}
!15 = !{!16, !13}
!16 = distinct !{!16, !17, !"hloom_parallel.body: %retptr"}
!17 = distinct !{!17, !"hloom_parallel.body"}
!18 = !{!19, !16, !13}
!19 = distinct !{!19, !20, !"hloom_work.body: %retptr"}
!20 = distinct !{!20, !"hloom_work.body"}
!21 = !{!22}
!22 = distinct !{!22, !23, !"hloom_enter.body: %retptr"}
!23 = distinct !{!23, !"hloom_enter.body"}
!24 = !{!25}
!25 = distinct !{!25, !26, !"hloom_entry_run.body: %retptr"}
!26 = distinct !{!26, !"hloom_entry_run.body"}
!27 = !{!28}
!28 = distinct !{!28, !29, !"hloom_entry_call.body: %retptr"}
!29 = distinct !{!29, !"hloom_entry_call.body"}
