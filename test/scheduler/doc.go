// Package scheduler tests the t9k-scheduler on a real API server. Its nodes are simulated by KWOK, or exist on paper only where
// a test decides itself when a pod has gone. Most tests share one API server and one scheduler, each with a namespace, queues
// and nodes of its own; those that kill the scheduler, or give it other settings, start their own.
//
// The clauses of the scheduler's specification, and what holds the scheduler to them. The tests of the first column are those of
// package core, where a round is a function of a cluster; random clusters, in which all clauses meet, are those of its
// TestProperties and TestNoStarvation, and here of TestMixed.
//
//	clause                       core                                             here
//	 1 all or nothing            TestGangIsAllOrNothing                           TestTwoGangs, TestGangFilters, TestVolumes
//	   roles                     TestRolesHaveMinimums                            TestRoleMinimums
//	   beyond the minimum        TestRolesHaveMinimums                            TestBeyondMinimum
//	   finished members          TestFinishedMembersCount                         TestMixed, TestFinishedMembersCount
//	   replacements              TestShortGangGoesFirst                           TestReplacementFirst
//	 2 order                     TestOrder, TestDominantShare                     TestOrder
//	 3 quota                     TestQuota                                        TestQuota, TestQuotaConcurrently, TestKilled
//	 4 preemption                TestPreemption, TestPreemptionExample            TestPreemption, TestPreemptionExample
//	   nobody in vain            TestPreemption                                   TestNobodyIsEvictedInVain
//	   freed room is kept        TestFreedRoomIsKept                              TestPreemptionExample
//	 5 backfill, starvation      TestGangIsAllOrNothing, TestReservation          TestBackfill, TestReservation
//	   waking                    –                                                TestWakes
//	 6 closed, missing queue     TestClosedAndMissingQueues                       TestClosedQueue, TestWakes, TestAdmission
//	 7 who may use a queue       –                                                TestAdmission
//	 8 maxDuration               –                                                TestStatus
//	 9 resourceShapeProfile      TestPodsThatAreTooLargeWait                      TestShapes
//	10 topology                  TestTopology                                     TestTopology, TestTopologyOfReplacement
//	11 restart                   TestStrandedGangIsEvicted                        TestKilled, TestTwoReplicas, TestPartialGang
//	12 status                    –                                                TestStatus
//	13 default queue             –                                                TestStatus, TestQueueRules
//	   default scheduler's pods  –                                                TestDefaultScheduler, TestPreemptionExample
//
// Some tests are small by default and can be made large: -mixed, -two-gangs 1000, -kills 100, -churns 100, -leaders 10.
package scheduler
